//! Requests of Redis clients, compared with an independent parser (the `redis-protocol` crate):
//! commands that both take say the same words and end at the same byte; what is cut short is
//! waited for; the words are slices of the input.

use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;
use stockade_engine::resp::parse;

/// A stream of commands.
pub fn body(data: &[u8]) {
    let mut rest = data;
    loop {
        let parsed = parse(rest);
        if rest.first() == Some(&b'*') {
            compare(rest, parsed.as_ref().ok().and_then(Option::as_ref));
        }
        let Ok(Some((arguments, taken))) = parsed else { return };
        assert!(taken > 0 && taken <= rest.len(), "{taken} of {} bytes", rest.len());
        let words: usize = arguments.iter().map(|argument| argument.len()).sum();
        assert!(words <= taken);
        for cut in [1, taken / 2, taken - 1] {
            let cut = parse(&rest[..cut.min(taken - 1)]);
            assert!(matches!(cut, Ok(None)), "a command cut short gives {cut:?}");
        }
        rest = &rest[taken..];
    }
}

fn compare(input: &[u8], ours: Option<&(Vec<&[u8]>, usize)>) {
    let theirs = match decode(input) {
        Ok(Some((OwnedFrame::Array(items), taken))) => {
            let word = |item: OwnedFrame| match item {
                OwnedFrame::BulkString(bytes) => Some(bytes),
                _ => None,
            };
            items.into_iter().map(word).collect::<Option<Vec<_>>>().map(|words| (words, taken))
        }
        _ => None,
    };
    // An empty array is a frame to them and nothing to us; a null array likewise.
    if let (Some((ours, taken)), Some((theirs, theirs_taken))) = (ours, &theirs) {
        assert_eq!(taken, theirs_taken, "the command ends at another byte");
        assert!(ours.iter().copied().eq(theirs.iter().map(Vec::as_slice)), "other words");
    }
    if let Some((ours, _)) = ours {
        assert!(theirs.is_some() || ours.is_empty(), "only we take {ours:?}");
    }
}
