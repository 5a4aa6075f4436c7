//! Parses systemd unit files like `go-systemd/unit`, with which Ignition validates them. This
//! includes its quirks: it notices an overlong line only if its read buffer happens to contain 2048
//! bytes without a line end.

/// The longest line that the library accepts.
const LINE_MAX: usize = 2048;
/// Size of the reader's buffer.
const BUFFER: usize = 4096;

/// Why a text is not a unit file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitFileError {
    /// A section header without its closing bracket.
    #[error("unable to find end of section")]
    UnclosedSection,
    /// Text after a section header.
    #[error("found garbage after section name {section}: {garbage:?}")]
    Garbage {
        /// The section.
        section: String,
        /// The text.
        garbage: String,
    },
    /// A line without `=`.
    #[error("unexpected newline encountered while parsing option name")]
    NewlineInName,
    /// The text ends inside an option's name.
    #[error("EOF")]
    EndInName,
    /// A line that is too long for systemd.
    #[error("line too long (max 2048 bytes)")]
    LineTooLong,
}

/// The section of each option, in order.
pub fn option_sections(text: &str) -> Result<Vec<&str>, UnitFileError> {
    let mut reader = UnitFileReader { text, at: 0, filled: 0 };
    let mut sections = Vec::new();
    let mut step = ParserState::NextSection;
    loop {
        if reader.holds_an_overlong_line() {
            return Err(UnitFileError::LineTooLong);
        }
        step = match step {
            ParserState::NextSection => match reader.read_char() {
                None => return Ok(sections),
                Some('[') => ParserState::SectionName,
                Some(c) if is_comment(c) => ParserState::Comment { section: None },
                Some(_) => ParserState::NextSection,
            },
            ParserState::SectionName => {
                let name = reader.read_until(b']').ok_or(UnitFileError::UnclosedSection)?;
                ParserState::SectionSuffix { section: name }
            }
            ParserState::SectionSuffix { section } => {
                let garbage = reader.read_line().trim();
                if !garbage.is_empty() {
                    let (section, garbage) = (section.to_owned(), garbage.to_owned());
                    return Err(UnitFileError::Garbage { section, garbage });
                }
                ParserState::SectionOrOption { section }
            }
            ParserState::Comment { section } => {
                while continues_comment(reader.read_line()) {}
                match section {
                    Some(section) => ParserState::SectionOrOption { section },
                    None => ParserState::NextSection,
                }
            }
            ParserState::SectionOrOption { section } => match reader.read_char() {
                None => return Ok(sections),
                Some(c) if c.is_whitespace() => ParserState::SectionOrOption { section },
                Some('[') => ParserState::SectionName,
                Some(c) if is_comment(c) => ParserState::Comment { section: Some(section) },
                Some(c) => {
                    reader.at -= c.len_utf8();
                    ParserState::OptionName { section }
                }
            },
            ParserState::OptionName { section } => {
                reader.skip_option_name()?;
                ParserState::OptionValue { section }
            }
            ParserState::OptionValue { section } => {
                let line = reader.read_line();
                if !line.trim().is_empty() && line.ends_with('\\') {
                    ParserState::OptionValue { section }
                } else {
                    sections.push(section);
                    ParserState::SectionOrOption { section }
                }
            }
        };
    }
}

fn is_comment(c: char) -> bool {
    c == '#' || c == ';'
}

fn continues_comment(line: &str) -> bool {
    line.strip_suffix(' ').unwrap_or(line).ends_with('\\')
}

/// What the parser expects next.
enum ParserState<'a> {
    NextSection,
    SectionName,
    SectionSuffix { section: &'a str },
    Comment { section: Option<&'a str> },
    SectionOrOption { section: &'a str },
    OptionName { section: &'a str },
    OptionValue { section: &'a str },
}

/// Simulates a reader with a buffer of fixed size. Only the fill level is tracked.
struct UnitFileReader<'a> {
    text: &'a str,
    at: usize,
    filled: usize,
}

impl<'a> UnitFileReader<'a> {
    fn fill(&mut self) {
        self.filled = self.text.len().min(self.at + BUFFER);
    }

    fn holds_an_overlong_line(&self) -> bool {
        if self.filled.saturating_sub(self.at) < LINE_MAX {
            return false;
        }
        let window = &self.text.as_bytes()[self.at..self.at + LINE_MAX];
        !window.iter().any(|b| matches!(b, b'\r' | b'\n'))
    }

    fn read_char(&mut self) -> Option<char> {
        let c = self.text[self.at..].chars().next()?;
        if self.filled < self.at + c.len_utf8() {
            self.fill();
        }
        self.at += c.len_utf8();
        Some(c)
    }

    /// Advances past `end`, refilling the buffer as often as a search through it would.
    fn advance_to(&mut self, end: usize) {
        while self.filled < end {
            if self.filled - self.at >= BUFFER {
                self.at = self.filled; // a full buffer is set aside as a fragment
            }
            self.fill();
        }
        self.at = end;
    }

    fn read_until(&mut self, delimiter: u8) -> Option<&'a str> {
        let rest = &self.text[self.at..];
        let length = rest.bytes().position(|b| b == delimiter)?;
        self.advance_to(self.at + length + 1);
        Some(&rest[..length])
    }

    fn read_line(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let newline = rest.bytes().position(|b| b == b'\n');
        let line = &rest[..newline.unwrap_or(rest.len())];
        self.advance_to(self.at + line.len() + usize::from(newline.is_some()));
        // Go trims a carriage return only if no newline follows it.
        if newline.is_some() { line } else { line.strip_suffix('\r').unwrap_or(line) }
    }

    fn skip_option_name(&mut self) -> Result<(), UnitFileError> {
        loop {
            match self.read_char() {
                None => return Err(UnitFileError::EndInName),
                Some('\n' | '\r') => return Err(UnitFileError::NewlineInName),
                Some('=') => return Ok(()),
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_files_are_parsed_like_ignition() {
        let long = format!("[Service]\nExecStart={}\n", "x".repeat(5000));
        for (text, expected) in [
            ("", Ok(vec![])),
            ("[Unit]\nDescription=a\n[Install]\nWantedBy=x\n", Ok(vec!["Unit", "Install"])),
            ("no section = ignored", Ok(vec![])),
            ("[Unit]\n# comment \\\nstill comment\nA=b", Ok(vec!["Unit"])),
            ("[Service]\nExecStart=a \\\n  b\nX=y", Ok(vec!["Service", "Service"])),
            ("[Unit", Err(UnitFileError::UnclosedSection)),
            ("[Unit]\nno option\n", Err(UnitFileError::NewlineInName)),
            ("[Unit]\nno option", Err(UnitFileError::EndInName)),
            (
                "[Unit] x\n",
                Err(UnitFileError::Garbage { section: "Unit".into(), garbage: "x".into() }),
            ),
            (&long, Err(UnitFileError::LineTooLong)),
        ] {
            assert_eq!(option_sections(text), expected, "{:?}", &text[..text.len().min(60)]);
        }
    }
}
