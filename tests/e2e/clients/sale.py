#!/usr/bin/env python3
"""The scripted sale of ../tests/clients.rs through redis-py. Arguments: host port sale."""
import sys
import redis

host, port, sale = sys.argv[1], int(sys.argv[2]), sys.argv[3]
client = redis.Redis(host=host, port=port, decode_responses=True, client_name="shop")


def show(name, answer):
    print(name, *[part if not isinstance(part, list) else ",".join(map(str, part)) for part in answer])


print("ping", client.ping())
definition = (
    '{"sale":%s,"name":"clients","opens_at":"now","hold_ms":600000,'
    '"skus":[{"sku":1,"stock":1000,"limit_per_user":1}]}' % sale
)
show("put", client.execute_command("STOCK.SALE.PUT", definition)[:1])
held = client.execute_command("STOCK.RESERVE", sale, 1, "first", 1, 1)
order = held[1]
show("reserve", [held[0], order != "0", held[2] > 0, held[3], held[4]])
again = client.execute_command("STOCK.RESERVE", sale, 1, "first", 1, 1)
show("again", [again[0], again[1] == order])
limit = client.execute_command("STOCK.RESERVE", sale, 1, "second", 1, 1)
show("limit", [limit[0], limit[1] == order, limit[4]])
show("malformed", client.execute_command("STOCK.RESERVE", sale, 1, "third", 1, "-1")[:2])
show("confirm", [client.execute_command("STOCK.CONFIRM", order, "pay-1")[0]])
show("cancel", [client.execute_command("STOCK.CANCEL", order)[0]])
status = client.execute_command("STOCK.STATUS", sale, 1, "first")
show("status", [status[0], status[1] == order, status[5], status[6]])
pipeline = client.pipeline(transaction=False)
for user in range(2, 102):
    pipeline.execute_command("STOCK.RESERVE", sale, user, "r", 1, 1)
show("pipeline", [sum(answer[0] == "held" for answer in pipeline.execute())])
show("sku", client.execute_command("STOCK.SKU", sale, 1))
try:
    client.execute_command("STOCK.NOTHING")
except redis.ResponseError as error:
    print("unknown", "unknown command" in str(error))
