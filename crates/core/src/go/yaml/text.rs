//! Writing the characters of a string: folding, quoting, escaping, blocks.

use super::emit::{FOLD_WIDTH, INDENT_STEP, YamlEmitter};
use super::scalar::{ScalarLayout, needs_escape};

const BYTE_ORDER_MARK: char = '\u{feff}';

/// The breaks that are written unchanged; all others become escapes or line feeds.
const RARE_BREAKS: [char; 2] = ['\u{2028}', '\u{2029}'];

/// Whether a position is at neither end of the text.
fn is_inner(text: &[u8], at: usize) -> bool {
    at > 0 && at + 1 < text.len()
}

/// Whether there is a space right before `at`.
fn follows_space(text: &[u8], at: usize) -> bool {
    at > 0 && text[at - 1] == b' '
}

impl YamlEmitter {
    /// Writes text without breaks, with every `'` doubled if `quoted`. A line may be folded at a single
    /// space beyond the width and continues at column `fold`.
    pub(super) fn words(&mut self, text: &str, fold: Option<usize>, quoted: bool) {
        let bytes = text.as_bytes();
        // Text before `written` is in the output; `column` follows the loop.
        let (mut written, mut column) = (0, self.column);
        for (at, byte) in bytes.iter().enumerate() {
            match (*byte, fold) {
                (b' ', Some(indent))
                    if column > FOLD_WIDTH
                        && is_inner(bytes, at)
                        && !follows_space(bytes, at)
                        && bytes[at + 1] != b' ' =>
                {
                    self.out.push_str(&text[written..at]);
                    self.fold(column, indent);
                    written = at + 1;
                    column = self.column;
                }
                (b'\'', _) if quoted => {
                    self.out.push_str(&text[written..=at]);
                    self.out.push('\'');
                    written = at + 1;
                    column += 2;
                }
                (byte, _) => column += usize::from(byte & 0xc0 != 0x80),
            }
        }
        self.out.push_str(&text[written..]);
        self.column = column;
    }

    /// Ends a line inside a string at `column` and continues at `indent`.
    fn fold(&mut self, column: usize, indent: usize) {
        self.column = column;
        self.fresh = false;
        self.start_line(indent);
    }

    /// Writes the text between single quotes.
    pub(super) fn single_quoted(&mut self, text: &str, fold: Option<usize>, look: ScalarLayout) {
        let (Some(indent), true) = (fold, look.rare_breaks) else {
            return self.words(text, fold, true);
        };
        for (number, line) in text.split_inclusive(RARE_BREAKS).enumerate() {
            let words = line.trim_end_matches(RARE_BREAKS);
            if !words.is_empty() {
                if number > 0 {
                    self.pad_to(indent);
                }
                self.words(words, fold, true);
            }
            if words.len() < line.len() {
                self.out.push_str(&line[words.len()..]);
                self.column = 0;
            }
        }
    }

    /// Writes the text between double quotes. Here a line may also be folded before several spaces,
    /// which a backslash protects.
    pub(super) fn double_quoted(&mut self, text: &str, fold: Option<usize>) {
        if text.starts_with(BYTE_ORDER_MARK) {
            // After a byte order mark go-yaml escapes everything.
            return text.chars().for_each(|c| self.escape(c));
        }
        let bytes = text.as_bytes();
        let (mut written, mut at) = (0, 0);
        let mut column = self.column;
        while let Some(&byte) = bytes.get(at) {
            let fold_here = fold.filter(|_| {
                byte == b' '
                    && column > FOLD_WIDTH
                    && is_inner(bytes, at)
                    && !follows_space(bytes, at)
            });
            if let Some(indent) = fold_here {
                self.out.push_str(&text[written..at]);
                self.fold(column, indent);
                at += 1;
                if bytes[at] == b' ' {
                    self.put("\\");
                }
            } else if needs_escape(&bytes[at..]) {
                let Some(c) = text[at..].chars().next() else { break };
                self.out.push_str(&text[written..at]);
                self.column = column;
                self.escape(c);
                at += c.len_utf8();
            } else {
                column += usize::from(byte & 0xc0 != 0x80);
                at += 1;
                continue;
            }
            written = at;
            column = self.column;
        }
        self.out.push_str(&text[written..]);
        self.column = column;
    }

    /// Writes one character as an escape, by its letter if it has one, else by its number.
    fn escape(&mut self, c: char) {
        let letter = match c {
            '\0' => '0',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '"' | '\\' => c,
            '\u{85}' => 'N',
            '\u{a0}' => '_',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            _ => return self.escape_number(u32::from(c)),
        };
        self.out.push('\\');
        self.out.push(letter);
        self.column += 2;
    }

    fn escape_number(&mut self, number: u32) {
        let (letter, digits) = match number {
            0..=0xff => ('x', 2),
            0x100..=0xffff => ('u', 4),
            _ => ('U', 8),
        };
        self.out.push('\\');
        self.out.push(letter);
        for place in (0..digits).rev() {
            let digit = char::from_digit((number >> (4 * place)) & 0xf, 16).unwrap_or('0');
            self.out.push(digit.to_ascii_uppercase());
        }
        self.column += 2 + digits;
    }

    /// Writes a literal block: a header with indentation and chomping, then every line at `indent`,
    /// unfolded.
    pub(super) fn literal(&mut self, text: &str, indent: usize, look: ScalarLayout) {
        let is_break = |c: char| c == '\n' || RARE_BREAKS.contains(&c);
        self.word("|");
        if text.starts_with(|c| c == ' ' || is_break(c)) {
            self.out.push(char::from(b'0' + INDENT_STEP as u8));
        }
        let mut from_end = text.chars().rev();
        match (from_end.next().is_some_and(is_break), from_end.next()) {
            (false, _) => self.out.push('-'),
            (true, None) => self.out.push('+'),
            (true, Some(before)) if is_break(before) => self.out.push('+'),
            (true, Some(_)) => {}
        }
        self.out.push('\n');
        if look.rare_breaks {
            text.split_inclusive(is_break).for_each(|line| self.literal_line(line, indent));
        } else {
            text.split_inclusive('\n').for_each(|line| self.literal_line(line, indent));
        }
        self.column = 0;
        self.spaced = true;
        self.fresh = text.ends_with(is_break);
    }

    /// Writes one line with its break. An empty line is not indented.
    fn literal_line(&mut self, line: &str, indent: usize) {
        if !line.starts_with('\n') && !line.starts_with(RARE_BREAKS) {
            self.column = 0;
            self.pad_to(indent);
        }
        self.out.push_str(line);
    }
}
