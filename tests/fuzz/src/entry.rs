//! Entries of the log: their bytes are canonical. Whatever decodes re-encodes to the same bytes, so
//! that journal, archive and feed can never differ; and its JSON can be made.

use stockade_protocol::Entry;
use stockade_protocol::entry::peek;
use stockade_protocol::json::entry_to_json;

/// Entries, one behind the other.
pub fn body(data: &[u8]) {
    let mut rest = data;
    while let Ok((entry, len)) = Entry::decode(rest) {
        let header = peek(rest).expect("what decodes has a header");
        assert_eq!((header.len, header.lsn), (len, entry.lsn));
        assert_eq!((header.kind, header.partition), (entry.event.kind(), entry.partition));
        let mut out = Vec::new();
        entry.encode(&mut out);
        assert_eq!(out, rest[..len], "{entry:?} has two forms");
        assert!(!entry_to_json(&entry).is_empty());
        rest = &rest[len..];
    }
}
