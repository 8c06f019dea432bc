//! The requests of RESP clients: arrays of bulk strings, or a line of words (as from telnet).
//! Bounded: nothing is taken on trust, and nothing is copied.

/// Arguments of one command: a reserve with 64 lines has 134.
const ARGUMENTS_MAX: usize = 1024;
/// Bytes of one argument: a sale file.
const ARGUMENT_BYTES_MAX: usize = 4 << 20;
/// Bytes of a line of words, and of a length.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Bytes that break the protocol; the connection closes after the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Protocol error: {0}")]
pub struct ParseError(pub &'static str);

/// One command: its arguments, and how many bytes it took. No arguments: an empty line, to be
/// ignored.
pub type Parsed<'a> = Option<(Vec<&'a [u8]>, usize)>;

/// The command at the front of `input`; `None`: more bytes are needed.
///
/// # Errors
/// See [`ParseError`].
pub fn parse(input: &[u8]) -> Result<Parsed<'_>, ParseError> {
    match input.first() {
        None => Ok(None),
        Some(b'*') => parse_array(input),
        Some(_) => parse_line(input),
    }
}

fn parse_line(input: &[u8]) -> Result<Parsed<'_>, ParseError> {
    let Some(end) = input.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n') else {
        if input.len() >= LINE_BYTES_MAX {
            return Err(ParseError("too big inline request"));
        }
        return Ok(None);
    };
    let words = input[..end].split(|byte| byte.is_ascii_whitespace());
    let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).collect();
    if words.len() > ARGUMENTS_MAX {
        return Err(ParseError("invalid multibulk length"));
    }
    Ok(Some((words, end + 1)))
}

fn parse_array(input: &[u8]) -> Result<Parsed<'_>, ParseError> {
    let Some((count, mut at)) = number(input, 1, "invalid multibulk length")? else {
        return Ok(None);
    };
    if count > ARGUMENTS_MAX as i64 {
        return Err(ParseError("invalid multibulk length"));
    }
    let mut arguments = Vec::with_capacity(count.clamp(0, 16) as usize);
    for _ in 0..count {
        match input.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(_) => return Err(ParseError("expected '$'")),
        }
        let Some((length, start)) = number(input, at + 1, "invalid bulk length")? else {
            return Ok(None);
        };
        let length = usize::try_from(length).map_err(|_| ParseError("invalid bulk length"))?;
        if length > ARGUMENT_BYTES_MAX {
            return Err(ParseError("invalid bulk length"));
        }
        let Some(argument) = input.get(start..start + length) else { return Ok(None) };
        match input.get(start + length..start + length + 2) {
            None => return Ok(None),
            Some(b"\r\n") => {}
            Some(_) => return Err(ParseError("a bulk string does not end with CRLF")),
        }
        arguments.push(argument);
        at = start + length + 2;
    }
    Ok(Some((arguments, at)))
}

/// A length up to CRLF, and where the next byte is.
fn number(
    input: &[u8],
    from: usize,
    error: &'static str,
) -> Result<Option<(i64, usize)>, ParseError> {
    let rest = &input[from.min(input.len())..];
    let Some(end) = rest.iter().take(12).position(|byte| *byte == b'\r') else {
        return if rest.len() >= 12 { Err(ParseError(error)) } else { Ok(None) };
    };
    match rest.get(end + 1) {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) => return Err(ParseError(error)),
    }
    let text = std::str::from_utf8(&rest[..end]).map_err(|_| ParseError(error))?;
    let number = text.parse::<i64>().map_err(|_| ParseError(error))?;
    Ok(Some((number, from + end + 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_whole_and_broken_ones_refused() {
        let good: &[(&[u8], &[&str], usize)] = &[
            (b"*1\r\n$4\r\nPING\r\n", &["PING"], 14),
            (b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\nrest", &["ECHO", ""], 20),
            (b"PING x\r\n", &["PING", "x"], 8),
            (b"\r\n", &[], 2),
            (b"*0\r\n", &[], 4),
            (b"*-1\r\n", &[], 5),
        ];
        for (input, words, taken) in good {
            let (arguments, used) = parse(input).unwrap().unwrap();
            assert_eq!(arguments, words.iter().map(|w| w.as_bytes()).collect::<Vec<_>>());
            assert_eq!(used, *taken);
            for cut in 0..*taken {
                assert_eq!(parse(&input[..cut]), Ok(None), "{cut} bytes of {input:?}");
            }
        }
        let bad: &[&[u8]] = &[
            b"*x\r\n",
            b"*1025\r\n",
            b"*1\r\n+PING\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n$5000000\r\n",
            b"*1\r\n$4\r\nPINGxx",
            b"*1\rx",
            b"*99999999999999999\r\n",
        ];
        for input in bad {
            assert!(parse(input).is_err(), "{:?}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn garbage_never_panics() {
        let mut state = 7u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize
        };
        let alphabet = b"*$\r\n0123456789-+abc \x00\xff";
        for _ in 0..100_000 {
            let length = random() % 40;
            let input: Vec<u8> = (0..length).map(|_| alphabet[random() % alphabet.len()]).collect();
            let _ = parse(&input);
        }
    }
}
