# The scripted sale of ../tests/clients.rs through redis-rb. Arguments: host port sale.
require "redis"

host, port, sale = ARGV
client = Redis.new(host: host, port: port.to_i)

def show(name, answer)
  parts = answer.map { |part| part.is_a?(Array) ? part.join(",") : part.to_s.sub("true", "True") }
  puts([name, *parts].join(" "))
end

puts "ping #{client.ping == "PONG" ? "True" : "False"}"
definition = %({"sale":#{sale},"name":"clients","opens_at":"now","hold_ms":600000,) +
  %("skus":[{"sku":1,"stock":1000,"limit_per_user":1}]})
show("put", client.call("STOCK.SALE.PUT", definition)[0, 1])
held = client.call("STOCK.RESERVE", sale, 1, "first", 1, 1)
order = held[1]
show("reserve", [held[0], order != "0", held[2] > 0, held[3], held[4]])
again = client.call("STOCK.RESERVE", sale, 1, "first", 1, 1)
show("again", [again[0], again[1] == order])
limit = client.call("STOCK.RESERVE", sale, 1, "second", 1, 1)
show("limit", [limit[0], limit[1] == order, limit[4]])
show("malformed", client.call("STOCK.RESERVE", sale, 1, "third", 1, "-1")[0, 2])
show("confirm", [client.call("STOCK.CONFIRM", order, "pay-1")[0]])
show("cancel", [client.call("STOCK.CANCEL", order)[0]])
status = client.call("STOCK.STATUS", sale, 1, "first")
show("status", [status[0], status[1] == order, status[5], status[6]])
answers = client.pipelined do |pipeline|
  (2..101).each { |user| pipeline.call("STOCK.RESERVE", sale, user, "r", 1, 1) }
end
show("pipeline", [answers.count { |answer| answer[0] == "held" }])
show("sku", client.call("STOCK.SKU", sale, 1))
begin
  client.call("STOCK.NOTHING")
rescue Redis::CommandError => error
  puts "unknown #{error.message.include?("unknown command") ? "True" : "False"}"
end
