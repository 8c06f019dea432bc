//! Tokens that clients must show, compared in a time that does not depend on where they differ.

/// True if no tokens are configured, or `shown` is one of them.
pub fn is_allowed(tokens: &[String], shown: &[u8]) -> bool {
    let mut found = tokens.is_empty();
    for token in tokens {
        found |= equal(token.as_bytes(), shown);
    }
    found
}

/// Compares all bytes whatever they are; the length may show.
fn equal(a: &[u8], b: &[u8]) -> bool {
    let mut difference = u8::from(a.len() != b.len());
    for (a, b) in a.iter().zip(b) {
        difference |= a ^ b;
    }
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_needed_only_where_some_are_configured() {
        let tokens = [String::from("alpha"), String::from("beta")];
        for (tokens, shown, allowed) in [
            (&[][..], "", true),
            (&[], "anything", true),
            (&tokens, "alpha", true),
            (&tokens, "beta", true),
            (&tokens, "", false),
            (&tokens, "alph", false),
            (&tokens, "alphabeta", false),
        ] {
            assert_eq!(is_allowed(tokens, shown.as_bytes()), allowed, "{shown}");
        }
    }
}
