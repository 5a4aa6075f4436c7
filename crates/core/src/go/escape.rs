//! The characters that Go's `encoding/json` escapes although JSON does not require it.

/// Escapes JSON like Go: `<`, `>`, `&`, U+2028 and U+2029. They occur only inside strings.
#[must_use]
pub fn escape_html(json: Vec<u8>) -> Vec<u8> {
    let special = |byte: &u8| matches!(byte, b'<' | b'>' | b'&' | 0xE2);
    if !json.iter().any(special) {
        return json;
    }
    let mut out = Vec::with_capacity(json.len() + json.len() / 16);
    let mut rest = json.as_slice();
    while let Some(at) = rest.iter().position(special) {
        let (before, from) = rest.split_at(at);
        out.extend_from_slice(before);
        let (escape, length) = match from {
            [b'<', ..] => (r"\u003c", 1),
            [b'>', ..] => (r"\u003e", 1),
            [b'&', ..] => (r"\u0026", 1),
            [0xE2, 0x80, 0xA8, ..] => (r"\u2028", 3),
            [0xE2, 0x80, 0xA9, ..] => (r"\u2029", 3),
            _ => ("", 1),
        };
        match escape {
            "" => out.extend_from_slice(&from[..length]),
            escape => out.extend_from_slice(escape.as_bytes()),
        }
        rest = &from[length..];
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_go_escapes_is_escaped() {
        for (text, expected) in [
            ("plain", "plain"),
            ("<a>&", r"\u003ca\u003e\u0026"),
            ("x\u{2028}y\u{2029}", r"x\u2028y\u2029"),
            ("€ â", "€ â"),
        ] {
            assert_eq!(escape_html(text.as_bytes().to_vec()), expected.as_bytes(), "{text}");
        }
    }
}
