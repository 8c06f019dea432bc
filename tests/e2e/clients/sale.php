<?php
// The scripted sale of ../tests/clients.rs through phpredis. Arguments: host port sale.
[, $host, $port, $sale] = $argv;
$client = new Redis();
$client->connect($host, (int) $port);

function show(string $name, array $answer): void
{
    $parts = array_map(function ($part) {
        if (is_array($part)) {
            return implode(",", $part);
        }
        return is_bool($part) ? ($part ? "True" : "False") : (string) $part;
    }, $answer);
    echo implode(" ", [$name, ...$parts]), "\n";
}

show("ping", [$client->ping() === true]);
$definition = '{"sale":' . $sale . ',"name":"clients","opens_at":"now","hold_ms":600000,'
    . '"skus":[{"sku":1,"stock":1000,"limit_per_user":1}]}';
show("put", [$client->rawCommand("STOCK.SALE.PUT", $definition)[0]]);
$held = $client->rawCommand("STOCK.RESERVE", $sale, 1, "first", 1, 1);
$order = $held[1];
show("reserve", [$held[0], $order !== "0", $held[2] > 0, $held[3], $held[4]]);
$again = $client->rawCommand("STOCK.RESERVE", $sale, 1, "first", 1, 1);
show("again", [$again[0], $again[1] === $order]);
$limit = $client->rawCommand("STOCK.RESERVE", $sale, 1, "second", 1, 1);
show("limit", [$limit[0], $limit[1] === $order, $limit[4]]);
show("malformed", array_slice($client->rawCommand("STOCK.RESERVE", $sale, 1, "third", 1, "-1"), 0, 2));
show("confirm", [$client->rawCommand("STOCK.CONFIRM", $order, "pay-1")[0]]);
show("cancel", [$client->rawCommand("STOCK.CANCEL", $order)[0]]);
$status = $client->rawCommand("STOCK.STATUS", $sale, 1, "first");
show("status", [$status[0], $status[1] === $order, $status[5], $status[6]]);
$pipeline = $client->pipeline();
for ($user = 2; $user < 102; $user++) {
    $pipeline->rawCommand("STOCK.RESERVE", $sale, $user, "r", 1, 1);
}
$held = array_filter($pipeline->exec(), fn($answer) => $answer[0] === "held");
show("pipeline", [count($held)]);
show("sku", $client->rawCommand("STOCK.SKU", $sale, 1));
$answer = $client->rawCommand("STOCK.NOTHING");
show("unknown", [$answer === false && str_contains($client->getLastError(), "unknown command")]);
