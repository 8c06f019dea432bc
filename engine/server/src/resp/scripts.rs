//! The scripts of shops that come from Redis: `EVALSHA` of a registered script is one command of
//! the engine, and its outcome is the value that the shop's code already understands.
//!
//! No Lua runs here. An operator registers a script by its SHA-1 or its file and says which command
//! it stands for and which values its outcomes have. What is not registered is refused. A shop
//! whose scripts are registered switches by changing the host name.

use super::commands::{self, Parsed};
use serde::Deserialize;
use sha1::{Digest, Sha1};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stockade_protocol::{OrderId, Outcome, Reply};

/// Commands that a script may stand for.
const COMMANDS: &[&str] = &[
    "STOCK.RESERVE",
    "STOCK.CONFIRM",
    "STOCK.CANCEL",
    "STOCK.EXTEND",
    "STOCK.RETURN",
    "STOCK.WITHDRAW",
    "STOCK.SKU",
];

/// A script as the config file has it.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct ScriptSettings {
    /// SHA-1 of its text, 40 hexadecimal digits.
    sha1: Option<String>,
    /// Or the file with its text, byte by byte what the shop sends; relative to the config file.
    file: Option<PathBuf>,
    /// What it stands for: words with `{KEYS[n]}` and `{ARGV[n]}` in them; `{KEYS[n]#prefix}` is
    /// the key without its prefix.
    command: String,
    /// The value of each outcome (and state, for reads).
    #[serde(default)]
    returns: BTreeMap<String, Value>,
    /// The value of outcomes that `returns` does not name.
    otherwise: Value,
}

/// What a script returns: a number, or a text in which `{order}`, `{left}`, `{free}` and
/// `{outcome}` stand for what the answer says. `{left}` or `{free}` alone is a number.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(untagged)]
pub enum Value {
    /// An integer.
    Number(i64),
    /// A bulk string.
    Text(String),
}

/// A piece of a word of the command.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Text(String),
    /// `KEYS` or `ARGV`, the index from 0, and what must stand before the value.
    Given {
        key: bool,
        at: usize,
        prefix: String,
    },
}

/// One registered script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    words: Vec<Vec<Piece>>,
    returns: BTreeMap<String, Value>,
    otherwise: Value,
}

/// All registered scripts, by SHA-1 in lower case.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scripts(BTreeMap<String, Arc<Script>>);

/// The SHA-1 of a script's text, as Redis writes it.
pub fn sha1_of(text: &[u8]) -> String {
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Scripts {
    /// Checks what the config file says. `base`: where relative files are looked for.
    ///
    /// # Errors
    /// One plain sentence that names the script by its number in the file.
    pub fn new(settings: &[ScriptSettings], base: &Path) -> Result<Self, String> {
        let mut scripts = BTreeMap::new();
        for (at, settings) in settings.iter().enumerate() {
            let named = |why: String| format!("script {}: {why}", at + 1);
            let sha1 = settings.sha1(base).map_err(named)?;
            let script = Script::new(settings).map_err(named)?;
            if scripts.insert(sha1, Arc::new(script)).is_some() {
                return Err(named("registered before".into()));
            }
        }
        Ok(Self(scripts))
    }

    /// The script with this SHA-1, in any case of letters.
    pub fn get(&self, sha1: &[u8]) -> Option<&Arc<Script>> {
        let sha1 = std::str::from_utf8(sha1).ok()?;
        self.0.get(&sha1.to_lowercase())
    }
}

impl ScriptSettings {
    fn sha1(&self, base: &Path) -> Result<String, String> {
        match (&self.sha1, &self.file) {
            (Some(sha1), None) => {
                let sha1 = sha1.to_lowercase();
                let hex = sha1.len() == 40 && sha1.bytes().all(|byte| byte.is_ascii_hexdigit());
                hex.then_some(sha1).ok_or_else(|| "sha1 must have 40 hexadecimal digits".into())
            }
            (None, Some(file)) => {
                let path = base.join(file);
                let text = std::fs::read(&path)
                    .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
                Ok(sha1_of(&text))
            }
            _ => Err("give either sha1 or file".into()),
        }
    }
}

impl Script {
    fn new(settings: &ScriptSettings) -> Result<Self, String> {
        let words = words(&settings.command)?;
        let name = match words.first().map(Vec::as_slice) {
            Some([Piece::Text(name)]) => name.to_uppercase(),
            _ => return Err("the command begins with its name".into()),
        };
        if !COMMANDS.contains(&name.as_str()) {
            return Err(format!("{name} is none of {}", COMMANDS.join(", ")));
        }
        let placeholders: Vec<&[u8]> = vec![b"1"; words.len() - 1];
        if let Parsed::Error(why) = commands::parse(&name, &placeholders)
            && why.contains("wrong number")
        {
            return Err(why.trim_start_matches("ERR ").into());
        }
        let known = |word: &String| {
            Outcome::ALL.iter().any(|outcome| outcome.word() == word)
                || ["unknown", "armed", "ended", "paused", "sold_out", "live"]
                    .contains(&word.as_str())
        };
        if let Some(word) = settings.returns.keys().find(|word| !known(word)) {
            return Err(format!("{word} is no outcome"));
        }
        let (returns, otherwise) = (settings.returns.clone(), settings.otherwise.clone());
        Ok(Self { words, returns, otherwise })
    }

    /// The command with what the caller gave; a value that is missing or lacks its prefix becomes
    /// an empty word, which no command accepts.
    pub fn command(&self, keys: &[&[u8]], arguments: &[&[u8]]) -> Vec<Vec<u8>> {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone().into_bytes(),
            Piece::Given { key, at, prefix } => {
                let given = if *key { keys } else { arguments };
                let value = given.get(*at).and_then(|value| value.strip_prefix(prefix.as_bytes()));
                value.unwrap_or_default().to_vec()
            }
        };
        self.words.iter().map(|word| word.iter().flat_map(piece).collect()).collect()
    }

    /// What the shop's code gets for an answer; `None` for `busy` that has no value of its own:
    /// nothing was decided, and no value of a decision may say so.
    pub fn value(&self, reply: &Reply) -> Option<Value> {
        let (word, order, left, free) = match reply {
            Reply::Reserve(reply) => (reply.outcome.word(), reply.order, reply.left, 0),
            Reply::Order(reply) => (reply.outcome.word(), reply.order, 0, 0),
            Reply::Sku(view) => (view.state.word(), None, 0, view.free),
            _ => (Outcome::Busy.word(), None, 0, 0),
        };
        let value = match self.returns.get(word) {
            Some(value) => value,
            None if word == Outcome::Busy.word() => return None,
            None => &self.otherwise,
        };
        Some(match value {
            Value::Number(number) => Value::Number(*number),
            Value::Text(text) if text == "{left}" => Value::Number(left),
            Value::Text(text) if text == "{free}" => Value::Number(free as i64),
            Value::Text(text) => {
                let order = order.map_or(0, OrderId::get).to_string();
                let text = text.replace("{order}", &order).replace("{outcome}", word);
                let text = text.replace("{left}", &left.to_string());
                Value::Text(text.replace("{free}", &free.to_string()))
            }
        })
    }
}

fn words(command: &str) -> Result<Vec<Vec<Piece>>, String> {
    command.split_ascii_whitespace().map(pieces).collect()
}

fn pieces(word: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut rest) = (Vec::new(), word);
    while let Some((before, behind)) = rest.split_once('{') {
        if !before.is_empty() {
            pieces.push(Piece::Text(before.into()));
        }
        let (inner, after) =
            behind.split_once('}').ok_or_else(|| format!("{word}: a brace is not closed"))?;
        pieces.push(given(inner).ok_or_else(|| {
            format!("{{{inner}}} must be {{KEYS[n]}} or {{ARGV[n]}}, with #prefix if need be")
        })?);
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.into()));
    }
    Ok(pieces)
}

/// `KEYS[1]`, `ARGV[2]`, `KEYS[1]#prefix`.
fn given(inner: &str) -> Option<Piece> {
    let (name, prefix) = inner.split_once('#').unwrap_or((inner, ""));
    let (name, index) = name.strip_suffix(']')?.split_once('[')?;
    let key = match name {
        "KEYS" => true,
        "ARGV" => false,
        _ => return None,
    };
    let at = index.parse::<usize>().ok()?.checked_sub(1)?;
    Some(Piece::Given { key, at, prefix: prefix.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_protocol::reply::{RETRY_NEVER, ReserveReply};

    fn settings(text: &str) -> Result<Scripts, String> {
        #[derive(Deserialize)]
        struct File {
            scripts: Vec<ScriptSettings>,
        }
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        Scripts::new(&file.scripts, Path::new("."))
    }

    const SHA1: &str = "da39a3ee5e6b4b0d3255bfef95601890afd80709";

    fn script(command: &str, returns: &str) -> Result<Arc<Script>, String> {
        let text = format!(
            "[[scripts]]\nsha1 = \"{SHA1}\"\ncommand = \"{command}\"\notherwise = -1\n\
             returns = {{ {returns} }}\n"
        );
        Ok(settings(&text)?.get(SHA1.to_uppercase().as_bytes()).unwrap().clone())
    }

    #[test]
    fn the_sha1_is_that_of_redis() {
        assert_eq!(sha1_of(b""), SHA1);
        assert_eq!(sha1_of(b"return 1"), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }

    #[test]
    fn a_command_is_filled_with_keys_and_arguments() {
        let script =
            script("STOCK.RESERVE 1 {ARGV[1]} u{ARGV[1]} {KEYS[1]#stock:} 1", "held = 1").unwrap();
        let shown = |keys: &[&[u8]], arguments: &[&[u8]]| {
            let words = script.command(keys, arguments);
            String::from_utf8(words.join(&b' ')).unwrap()
        };
        assert_eq!(shown(&[b"stock:1001"], &[b"7"]), "STOCK.RESERVE 1 7 u7 1001 1");
        assert_eq!(shown(&[b"1001"], &[b"7"]), "STOCK.RESERVE 1 7 u7  1");
        assert_eq!(shown(&[], &[]), "STOCK.RESERVE 1  u  1");
    }

    #[test]
    fn outcomes_have_the_values_of_the_script() {
        let script = script(
            "STOCK.RESERVE 1 {ARGV[1]} r 1 1",
            "held = 1, sold_out = 0, limit = \"{outcome}:{order}\", throttled = \"{left}\"",
        )
        .unwrap();
        let value = |outcome| {
            let mut reply = ReserveReply::rejected(outcome, RETRY_NEVER);
            (reply.order, reply.left) = (OrderId::new(5), 3);
            script.value(&Reply::Reserve(reply))
        };
        assert_eq!(value(Outcome::Held), Some(Value::Number(1)));
        assert_eq!(value(Outcome::SoldOut), Some(Value::Number(0)));
        assert_eq!(value(Outcome::Limit), Some(Value::Text("limit:5".into())));
        assert_eq!(value(Outcome::Throttled), Some(Value::Number(3)));
        assert_eq!(value(Outcome::Ended), Some(Value::Number(-1)));
        // Nothing was decided: no value of a decision.
        assert_eq!(value(Outcome::Busy), None);
        assert_eq!(script.value(&Reply::Busy { retry_after_ms: 1 }), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_plain_words() {
        for (command, returns, why) in [
            ("GET x", "held = 1", "GET is none of"),
            ("{ARGV[1]} x", "held = 1", "begins with its name"),
            ("STOCK.CONFIRM {ARGV[1]}", "confirmed = 1", "wrong number of arguments"),
            ("STOCK.CONFIRM {ARGV[0]} p", "confirmed = 1", "must be {KEYS[n]}"),
            ("STOCK.CONFIRM {ARGS[1]} p", "confirmed = 1", "must be {KEYS[n]}"),
            ("STOCK.CONFIRM {ARGV[1] p", "confirmed = 1", "a brace is not closed"),
            ("STOCK.CONFIRM {ARGV[1]} p", "confirmd = 1", "confirmd is no outcome"),
        ] {
            let error = script(command, returns).unwrap_err();
            assert!(error.contains(why) && error.starts_with("script 1: "), "{error}");
        }
        let both = "[[scripts]]\ncommand = \"STOCK.CANCEL {ARGV[1]}\"\notherwise = 0\n";
        assert!(settings(both).unwrap_err().contains("either sha1 or file"));
    }
}
