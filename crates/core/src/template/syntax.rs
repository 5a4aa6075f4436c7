//! Syntax errors that Go reports and the engine accepts: unclosed blocks, `end` without a block,
//! unclosed strings and comments, undeclared variables.

/// An open block: its keyword, and how many variables were declared before it.
struct OpenBlock {
    keyword: &'static str,
    line: usize,
    known: usize,
    had_else: bool,
}

/// A token inside an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TemplateToken<'a> {
    Word(&'a str),
    Variable(&'a str),
    Declare,
    Assign,
    /// Another operand: a literal or a field.
    Value(&'a str),
    /// A pipe, a comma, a parenthesis.
    Mark,
}

/// Checks a template before the engine parses it.
///
/// # Errors
/// What is wrong, with the line.
pub(super) fn check(text: &str) -> Result<(), String> {
    let mut blocks: Vec<OpenBlock> = Vec::new();
    let mut known: Vec<&str> = vec!["$"];
    let mut rest = text;
    while let Some(at) = rest.find("{{") {
        let line = 1 + text[..text.len() - rest.len() + at].matches('\n').count();
        let at_line = |message: String| format!("line {line}: {message}");
        let inside = trimmed_left(&rest[at + 2..]);
        if let Some(comment) = inside.strip_prefix("/*") {
            let end = comment.find("*/").ok_or_else(|| at_line("unclosed comment".to_owned()))?;
            let after = &comment[end + 2..];
            rest = after
                .strip_prefix("}}")
                .or_else(|| after.strip_prefix(" -}}"))
                .ok_or_else(|| at_line("comment ends before closing delimiter".to_owned()))?;
            continue;
        }
        let (tokens, after) = tokens(inside).map_err(at_line)?;
        rest = after;
        action(&tokens, line, &mut blocks, &mut known).map_err(at_line)?;
    }
    match blocks.last() {
        None => Ok(()),
        Some(block) => {
            Err(format!("line {}: {{{{{}}}}} has no {{{{end}}}}", block.line, block.keyword))
        }
    }
}

/// The text after the left delimiter, without a trim marker.
fn trimmed_left(text: &str) -> &str {
    let marked = text.strip_prefix('-').filter(|rest| rest.starts_with(char::is_whitespace));
    marked.map_or(text, str::trim_start)
}

/// The tokens up to the right delimiter, and the text after it.
fn tokens(mut text: &str) -> Result<(Vec<TemplateToken<'_>>, &str), String> {
    let mut tokens = Vec::new();
    loop {
        let trimmed = text.trim_start();
        if trimmed.len() < text.len()
            && let Some(after) = trimmed.strip_prefix("-}}")
        {
            return Ok((tokens, after));
        }
        if let Some(after) = trimmed.strip_prefix("}}") {
            return Ok((tokens, after));
        }
        let (token, length) = token(trimmed)?;
        tokens.push(token);
        text = &trimmed[length..];
    }
}

/// The first token of a text, and its length.
fn token(text: &str) -> Result<(TemplateToken<'_>, usize), String> {
    let first = text.chars().next().ok_or("unclosed action")?;
    let name_length =
        |text: &str| text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len());
    Ok(match first {
        '"' | '\'' => {
            let length = quoted_length(text, first)?;
            (TemplateToken::Value(&text[..length]), length)
        }
        '`' => {
            let end = text[1..].find('`').ok_or("unterminated raw quoted string")?;
            (TemplateToken::Value(&text[..end + 2]), end + 2)
        }
        ':' if text.starts_with(":=") => (TemplateToken::Declare, 2),
        '=' => (TemplateToken::Assign, 1),
        '$' => {
            let length = 1 + name_length(&text[1..]);
            terminated(&text[length..])?;
            (TemplateToken::Variable(&text[..length]), length)
        }
        '.' | '+' | '-' | '0'..='9' => {
            let length = text[1..]
                .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
                .map_or(text.len(), |at| at + 1);
            number(&text[..length])?;
            (TemplateToken::Value(&text[..length]), length)
        }
        c if c == '_' || c.is_alphabetic() => {
            let length = name_length(text);
            terminated(&text[length..])?;
            (TemplateToken::Word(&text[..length]), length)
        }
        c => (TemplateToken::Mark, c.len_utf8()),
    })
}

/// Checks the character after a name.
fn terminated(text: &str) -> Result<(), String> {
    match text.chars().next() {
        None => Ok(()),
        Some(_) if text.starts_with("}}") => Ok(()),
        Some(c) if c.is_whitespace() || ".,|:()".contains(c) => Ok(()),
        Some(c) => Err(format!("bad character {c:?}")),
    }
}

/// The length of a quoted string with its quotes. Escapes have to be Go's.
fn quoted_length(text: &str, quote: char) -> Result<usize, String> {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\n' => break,
            '\\' => {
                let (_, escape) = chars.next().ok_or("unterminated quoted string")?;
                let is_known = "abfnrtvxuU\\01234567".contains(escape) || escape == quote;
                if !is_known {
                    return Err(format!("invalid escape \\{escape} in a string"));
                }
            }
            c if c == quote => return Ok(at + 1),
            _ => {}
        }
    }
    Err("unterminated quoted string".to_owned())
}

/// Rejects numbers that Go does not parse: `1__0`, `08`.
fn number(text: &str) -> Result<(), String> {
    let digits = text.trim_start_matches(['+', '-']);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(());
    }
    let is_octal = digits.len() > 1
        && digits.starts_with('0')
        && digits[1..].bytes().all(|b| b.is_ascii_digit() || b == b'_');
    if digits.contains("__") || digits.ends_with('_') || (is_octal && digits.contains(['8', '9'])) {
        return Err(format!("illegal number syntax: {text:?}"));
    }
    Ok(())
}

fn action<'a>(
    tokens: &[TemplateToken<'a>],
    line: usize,
    blocks: &mut Vec<OpenBlock>,
    known: &mut Vec<&'a str>,
) -> Result<(), String> {
    let (word, rest) = match tokens {
        [TemplateToken::Word(word), rest @ ..] => (*word, rest),
        all => ("", all),
    };
    let open = |word: &'static str, blocks: &mut Vec<OpenBlock>, known: usize| {
        blocks.push(OpenBlock { keyword: word, line, known, had_else: false });
    };
    match word {
        "if" => open("if", blocks, known.len()),
        "with" => open("with", blocks, known.len()),
        "range" => open("range", blocks, known.len()),
        "block" => {
            if rest.len() < 2 {
                return Err("missing value for block clause".to_owned());
            }
            open("block", blocks, known.len());
        }
        "define" => {
            if !blocks.is_empty() {
                return Err("unexpected <define> inside a block".to_owned());
            }
            open("define", blocks, known.len());
        }
        "else" => {
            let block = blocks.last_mut().ok_or("unexpected {{else}}")?;
            let may = matches!(block.keyword, "if" | "with" | "range");
            if !may || block.had_else {
                return Err("unexpected {{else}}".to_owned());
            }
            // `else if` opens no block: it shares the `end`.
            block.had_else = rest.is_empty();
            if !rest.is_empty() {
                return variables(&rest[1..], known);
            }
        }
        "end" => {
            let block = blocks.pop().ok_or("unexpected {{end}}")?;
            known.truncate(block.known);
        }
        _ => return variables(tokens, known),
    }
    variables(rest, known)
}

/// Checks that variables are declared before they are used.
fn variables<'a>(tokens: &[TemplateToken<'a>], known: &mut Vec<&'a str>) -> Result<(), String> {
    let Some(at) = tokens
        .iter()
        .position(|token| matches!(token, TemplateToken::Declare | TemplateToken::Assign))
    else {
        return Ok(());
    };
    for token in &tokens[..at] {
        if let TemplateToken::Variable(name) = token {
            match tokens[at] {
                TemplateToken::Declare => known.push(name),
                _ if known.contains(name) => {}
                _ => return Err(format!("undefined variable {name:?}")),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_syntax_is_refused_like_in_go() {
        for text in [
            "{{if .A}}",
            "{{end}}",
            "{{else}}",
            "a\n{{range .A}}{{else}}{{else}}{{end}}",
            "{{/* x */ }}",
            "{{/* x",
            "{{\"a}}",
            "{{\"a\nb\"}}",
            "{{\"\\q\"}}",
            "{{`a}}",
            "{{$x = 1}}",
            "{{if true}}{{define \"x\"}}{{end}}{{end}}",
            "{{block \"b\"}}{{end}}",
            "{{1__0}}",
            "{{08}}",
            "{{.A",
            "{{$$x}}",
            "{{print$x}}",
            "{{if $x := .A}}{{end}}{{$x = 1}}",
        ] {
            assert!(check(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn valid_syntax_is_accepted_like_in_go() {
        for text in [
            "",
            "}}",
            "{{- 1 -}}",
            "{{/* a */ -}}",
            "{{- /* a\n }} */}}",
            "{{\"}}\"}}",
            "{{`{{end}}`}}",
            "{{'\"'}}",
            "{{if .A}}{{else if .B}}{{else}}{{end}}",
            "{{define \"a\"}}{{end}}",
            "{{$x := 1}}{{$x = 2}}",
            "{{range $i, $v := .A}}{{$v = 1}}{{end}}",
            "{{-3}}",
            "{{0x1F}} {{017}} {{1_000}}",
            "{{.Deep.A | print}}",
        ] {
            assert_eq!(check(text), Ok(()), "{text:?}");
        }
    }
}
