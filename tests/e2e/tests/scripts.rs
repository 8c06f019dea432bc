//! A shop with a Lua script switches by changing the host name: the script is registered, its
//! faults are named, and its callers get the values they know.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;
use stockade_e2e::{Server, Value, program};

/// What tutorials teach, faults and all.
const SCRIPT: &str = "\
if tonumber(redis.call('get', KEYS[1]) or 0) <= 0 then return 1 end
if redis.call('sismember', KEYS[2], ARGV[1]) == 1 then return 2 end
redis.call('decr', KEYS[1])
redis.call('sadd', KEYS[2], ARGV[1])
return 0
";

const CONFIG: &str = "\
[[scripts]]
file = \"deduct.lua\"
command = \"STOCK.RESERVE 1 {ARGV[1]} {ARGV[2]} {KEYS[1]#seckill:stock:} 1\"
otherwise = -1
returns = { held = 0, confirmed = 0, sold_out = 1, limit = 2, cancelled = \"{order} {outcome}\" }
";

const SALE: &str = r#"{"sale":1,"name":"lua","opens_at":"now","hold_ms":600000,
    "skus":[{"sku":1001,"stock":2,"limit_per_user":1}]}"#;

#[test]
fn a_shop_with_a_script_switches_by_changing_the_host_name() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("deduct.lua");
    let config = dir.path().join("stockade.toml");
    std::fs::write(&script, SCRIPT).unwrap();
    std::fs::write(&config, CONFIG).unwrap();
    let check = Command::new(program("stockade-cli"))
        .args(["--json", "lua", "check", script.to_str().unwrap()])
        .output()
        .unwrap();
    let found: serde_json::Value = serde_json::from_slice(&check.stdout).unwrap();
    assert_eq!(check.status.code(), Some(1));
    assert!(found["faults"].as_array().unwrap().len() >= 4, "{found}");
    let sha1 = found["sha1"].as_str().unwrap().to_owned();

    let server = Server::start(&dir.path().join("data"), &["--config", config.to_str().unwrap()]);
    let mut shop = server.resp();
    shop.call(&["STOCK.SALE.PUT", SALE]).unwrap();
    let mut buy = |user: &str, request: &str| {
        let keys = ["EVALSHA", &sha1, "2", "seckill:stock:1001", "seckill:users:1001"];
        shop.call(&[&keys[..], &[user, request]].concat()).unwrap()
    };
    assert_eq!(buy("7", "a").number(), 0);
    // The retry of a purchase is that purchase, and not a second one.
    assert_eq!(buy("7", "a").number(), 0);
    assert_eq!(buy("7", "b").number(), 2);
    assert_eq!(buy("8", "a").number(), 0);
    assert_eq!(buy("9", "a").number(), 1);
    assert_eq!(buy("x", "a").number(), -1);
    let mut shop = server.resp();
    let order = shop.call(&["STOCK.STATUS", "1", "7", "a"]).unwrap().items()[1].text().to_owned();
    shop.call(&["STOCK.CANCEL", &order]).unwrap();
    let keys = ["EVAL", SCRIPT, "1", "seckill:stock:1001", "7", "a"];
    assert_eq!(shop.call(&keys).unwrap().text(), format!("{order} cancelled"));
    for (words, why) in [
        (["EVAL", "return redis.call('get', KEYS[1])", "0"], "ERR no Lua runs here"),
        (["EVALSHA", "ffffffffffffffffffffffffffffffffffffffff", "0"], "NOSCRIPT"),
    ] {
        let answer = shop.call(&words).unwrap();
        assert!(matches!(&answer, Value::Error(text) if text.starts_with(why)), "{answer:?}");
    }
}
