/* The scripted sale of ../tests/clients.rs through hiredis. Arguments: host port sale. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *word(int yes) { return yes ? "True" : "False"; }

static void part(const redisReply *reply) {
    if (reply->type == REDIS_REPLY_INTEGER) {
        printf("%lld", reply->integer);
    } else if (reply->type == REDIS_REPLY_ARRAY) {
        for (size_t at = 0; at < reply->elements; at++) {
            if (at > 0) printf(",");
            part(reply->element[at]);
        }
    } else {
        printf("%s", reply->str);
    }
}

/* The first `count` elements of an answer, all if it is 0. */
static void show(const char *name, redisReply *reply, size_t count) {
    printf("%s", name);
    if (count == 0) count = reply->elements;
    for (size_t at = 0; at < count; at++) {
        printf(" ");
        part(reply->element[at]);
    }
    printf("\n");
    freeReplyObject(reply);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    const char *sale = argv[3];
    redisContext *c = redisConnect(argv[1], atoi(argv[2]));
    if (c == NULL || c->err) return 3;
    redisReply *r = redisCommand(c, "PING");
    printf("ping %s\n", word(strcmp(r->str, "PONG") == 0));
    freeReplyObject(r);
    char definition[256];
    snprintf(definition, sizeof definition,
             "{\"sale\":%s,\"name\":\"clients\",\"opens_at\":\"now\",\"hold_ms\":600000,"
             "\"skus\":[{\"sku\":1,\"stock\":1000,\"limit_per_user\":1}]}", sale);
    show("put", redisCommand(c, "STOCK.SALE.PUT %s", definition), 1);
    r = redisCommand(c, "STOCK.RESERVE %s 1 first 1 1", sale);
    char order[32];
    snprintf(order, sizeof order, "%s", r->element[1]->str);
    printf("reserve %s %s %s %lld %lld\n", r->element[0]->str, word(strcmp(order, "0") != 0),
           word(r->element[2]->integer > 0), r->element[3]->integer, r->element[4]->integer);
    freeReplyObject(r);
    r = redisCommand(c, "STOCK.RESERVE %s 1 first 1 1", sale);
    printf("again %s %s\n", r->element[0]->str, word(strcmp(r->element[1]->str, order) == 0));
    freeReplyObject(r);
    r = redisCommand(c, "STOCK.RESERVE %s 1 second 1 1", sale);
    printf("limit %s %s %lld\n", r->element[0]->str, word(strcmp(r->element[1]->str, order) == 0),
           r->element[4]->integer);
    freeReplyObject(r);
    show("malformed", redisCommand(c, "STOCK.RESERVE %s 1 third 1 -1", sale), 2);
    show("confirm", redisCommand(c, "STOCK.CONFIRM %s pay-1", order), 1);
    show("cancel", redisCommand(c, "STOCK.CANCEL %s", order), 1);
    r = redisCommand(c, "STOCK.STATUS %s 1 first", sale);
    printf("status %s %s %s ", r->element[0]->str, word(strcmp(r->element[1]->str, order) == 0),
           r->element[5]->str);
    part(r->element[6]);
    printf("\n");
    freeReplyObject(r);
    for (int user = 2; user < 102; user++) {
        redisAppendCommand(c, "STOCK.RESERVE %s %d r 1 1", sale, user);
    }
    int held = 0;
    for (int user = 2; user < 102; user++) {
        if (redisGetReply(c, (void **)&r) != REDIS_OK) return 3;
        held += strcmp(r->element[0]->str, "held") == 0;
        freeReplyObject(r);
    }
    printf("pipeline %d\n", held);
    show("sku", redisCommand(c, "STOCK.SKU %s 1", sale), 0);
    r = redisCommand(c, "STOCK.NOTHING");
    printf("unknown %s\n", word(r->type == REDIS_REPLY_ERROR && strstr(r->str, "unknown command") != NULL));
    freeReplyObject(r);
    redisFree(c);
    return 0;
}
