//! Binary frames: never a panic; what is taken comes back equal, and the second encoding is the
//! first one's bytes. (Decoding is lenient where the protocol may grow, so that the first input
//! need not be canonical.)

use stockade_protocol::wire::{
    BODY_BYTES_MAX, Header, RequestError, Response, decode_request, decode_response,
    encode_request, encode_response, split,
};
use stockade_protocol::{Entry, wire};

/// A stream of frames; each is read as a request and as a response.
pub fn body(data: &[u8]) {
    let mut rest = data;
    loop {
        let (header, body, taken) = match split(rest, BODY_BYTES_MAX) {
            Ok(Some(frame)) => frame,
            Ok(None) => return,
            Err(_) => return,
        };
        assert!(taken <= rest.len() && taken >= wire::HEADER_BYTES, "a frame of {taken} bytes");
        check_request(&header, body);
        check_response(&header, body);
        rest = &rest[taken..];
    }
}

fn check_request(header: &Header, body: &[u8]) {
    let request = match decode_request(header, body) {
        Ok(request) => request,
        Err(RequestError::Rejected(reply)) => {
            // The rejection itself must be sendable.
            let mut out = Vec::new();
            encode_response(&Response::Reply(reply), header.correlation, &mut out);
            return;
        }
        Err(RequestError::Error { .. }) => return,
    };
    if let wire::Request::ReserveMany(reserves) = &request
        && reserves.iter().any(Option::is_none)
    {
        return; // Entries out of range have no bytes.
    }
    let mut first = Vec::new();
    encode_request(&request, header.correlation, &mut first);
    let (again, body, taken) =
        split(&first, BODY_BYTES_MAX).expect("what was taken fits again").expect("a whole frame");
    assert_eq!(taken, first.len());
    assert_eq!(again.correlation, header.correlation);
    assert_eq!(decode_request(&again, body).as_ref(), Ok(&request));
    let mut second = Vec::new();
    encode_request(&request, header.correlation, &mut second);
    assert_eq!(first, second, "encoding is a function");
}

fn check_response(header: &Header, body: &[u8]) {
    let Ok(response) = decode_response(header, body) else { return };
    let mut out = Vec::new();
    encode_response(&response, header.correlation, &mut out);
    let (again, body, taken) =
        split(&out, BODY_BYTES_MAX).expect("what was taken fits again").expect("a whole frame");
    assert_eq!(taken, out.len());
    assert_eq!(decode_response(&again, body).as_ref(), Ok(&response));
    if let Response::Entries { bytes, .. } = &response {
        let mut rest = &bytes[..];
        while let Ok((_, len)) = Entry::decode(rest) {
            rest = &rest[len..];
        }
    }
}
