//! Sale files and moments: a sentence or a patch; a patch written out and read again is the same,
//! and travels over the wire unchanged.

use stockade_protocol::Command;
use stockade_protocol::json::{format_rfc3339, parse_rfc3339, sale_patch, sale_patch_to_json};
use stockade_protocol::wire::{BODY_BYTES_MAX, Request, decode_request, encode_request, split};

/// A sale file; also read as a moment.
pub fn body(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(at) = parse_rfc3339(text) {
        assert_eq!(parse_rfc3339(&format_rfc3339(at)), Ok(at), "{text}");
    }
    let patch = match sale_patch(text) {
        Ok(patch) => patch,
        Err(sentence) => {
            assert!(!sentence.is_empty() && sentence.len() < 1024, "{} bytes", sentence.len());
            return;
        }
    };
    let written = sale_patch_to_json(&patch);
    assert_eq!(sale_patch(&written).as_ref(), Ok(&patch), "{written}");
    let request = Request::Command(Command::SalePut(Box::new(patch)));
    let mut frame = Vec::new();
    encode_request(&request, 1, &mut frame);
    let Ok(Some((header, body, _))) = split(&frame, BODY_BYTES_MAX) else { return };
    assert_eq!(decode_request(&header, body), Ok(request));
}
