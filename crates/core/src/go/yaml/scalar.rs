//! Chooses the style of a string: plain, single-quoted, double-quoted or literal block.

use super::resolve::stays_a_string;

/// The four styles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarStyle {
    /// Unquoted.
    Plain,
    /// Between `'`, which is doubled inside.
    Single,
    /// Between `"`, with escapes.
    Double,
    /// After `|`, line by line.
    Literal,
}

/// The style of a string and what the emitter has to know about its line breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScalarLayout {
    /// The style.
    pub(super) style: ScalarStyle,
    /// Whether it contains a line break of YAML 1.1.
    pub(super) multiline: bool,
    /// Whether it contains a break other than a line feed.
    pub(super) rare_breaks: bool,
}

/// What a byte means for the choice of a style.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteClass {
    /// Nothing.
    Ordinary,
    Space,
    LineFeed,
    Colon,
    Hash,
    /// Always escaped.
    Special,
    /// Starts a character that may be special or a break: NEL and other C1 controls, U+2028,
    /// U+2029, the byte order mark and the last two of the basic plane.
    MultibyteStart,
}

static CLASSES: [ByteClass; 256] = classes();

const fn classes() -> [ByteClass; 256] {
    let mut table = [ByteClass::Ordinary; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b' ' => ByteClass::Space,
            b'\n' => ByteClass::LineFeed,
            b':' => ByteClass::Colon,
            b'#' => ByteClass::Hash,
            b'\r' | 0xc2 | 0xe2 | 0xef => ByteClass::MultibyteStart,
            0..=0x1f | 0x7f | 0xf0..=0xff => ByteClass::Special,
            _ => ByteClass::Ordinary,
        };
        byte += 1;
    }
    table
}

/// Properties of the characters of a string.
#[derive(Default)]
struct ScalarTraits {
    line_feeds: bool,
    rare_breaks: bool,
    special: bool,
    indicators: bool,
    leading: bool,
    trailing_space: bool,
    trailing_break: bool,
    space_before_break: bool,
    space_after_break: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NeighbourKind {
    Start,
    Space,
    Break,
    Other,
}

/// Chooses the style of `text`.
pub(super) fn choose_layout(text: &str) -> ScalarLayout {
    let traits = examine(text.as_bytes());
    let multiline = traits.line_feeds || traits.rare_breaks;
    let unquotable = traits.space_before_break || traits.special;
    let style = if traits.line_feeds {
        if unquotable || traits.trailing_space { ScalarStyle::Double } else { ScalarStyle::Literal }
    } else if !stays_a_string(text) || unquotable || traits.space_after_break {
        ScalarStyle::Double
    } else if multiline
        || traits.leading
        || traits.trailing_space
        || traits.trailing_break
        || traits.indicators
    {
        ScalarStyle::Single
    } else {
        ScalarStyle::Plain
    };
    ScalarLayout { style, multiline, rare_breaks: traits.rare_breaks }
}

fn examine(text: &[u8]) -> ScalarTraits {
    let mut traits =
        ScalarTraits { indicators: starts_with_indicator(text), ..ScalarTraits::default() };
    let mut previous = NeighbourKind::Start;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let class = CLASSES[usize::from(byte)];
        at += 1;
        if class == ByteClass::Ordinary {
            at += text[at..]
                .iter()
                .take_while(|b| CLASSES[usize::from(**b)] == ByteClass::Ordinary)
                .count();
            previous = NeighbourKind::Other;
            continue;
        }
        let mut current = NeighbourKind::Other;
        match class {
            ByteClass::Space => current = NeighbourKind::Space,
            ByteClass::LineFeed => {
                traits.line_feeds = true;
                current = NeighbourKind::Break;
            }
            ByteClass::Colon => traits.indicators |= matches!(text.get(at), None | Some(b' ')),
            ByteClass::Hash => traits.indicators |= previous == NeighbourKind::Space,
            ByteClass::Special => traits.special = true,
            ByteClass::MultibyteStart => {
                let (special, is_break) = classify_multibyte(&text[at - 1..]);
                traits.special |= special;
                traits.rare_breaks |= is_break;
                if is_break {
                    current = NeighbourKind::Break;
                    // Skip the rest of the character, which does not follow the break.
                    at += if byte == 0xe2 { 2 } else { usize::from(byte == 0xc2) };
                }
            }
            ByteClass::Ordinary => {}
        }
        traits.neighbours(previous, current);
        previous = current;
    }
    traits.trailing_space = previous == NeighbourKind::Space;
    traits.trailing_break = previous == NeighbourKind::Break;
    traits
}

impl ScalarTraits {
    fn neighbours(&mut self, previous: NeighbourKind, current: NeighbourKind) {
        match (previous, current) {
            (NeighbourKind::Start, NeighbourKind::Space | NeighbourKind::Break) => {
                self.leading = true;
            }
            (NeighbourKind::Space, NeighbourKind::Break) => self.space_before_break = true,
            (NeighbourKind::Break, NeighbourKind::Space) => self.space_after_break = true,
            _ => {}
        }
    }
}

/// For a character whose first byte is ambiguous: whether it is special, and whether it is a break.
fn classify_multibyte(text: &[u8]) -> (bool, bool) {
    match text {
        [b'\r', ..] | [0xc2, 0x85, ..] => (true, true),
        [0xc2, 0x80..=0x9f, ..] | [0xef, 0xbb, 0xbf, ..] | [0xef, 0xbf, 0xbe | 0xbf, ..] => {
            (true, false)
        }
        [0xe2, 0x80, 0xa8 | 0xa9, ..] => (false, true),
        _ => (false, false),
    }
}

/// Whether the start of `text` is an indicator in a block context.
fn starts_with_indicator(text: &[u8]) -> bool {
    let opens = |byte: &u8| b"#,[]{}&*!|>'\"%@`".contains(byte);
    text.first().is_some_and(opens)
        || text.starts_with(b"---")
        || text.starts_with(b"...")
        || matches!(text, [b'-' | b'?' | b':'] | [b'-' | b'?' | b':', b' ', ..])
}

/// Whether a character is escaped between double quotes. Spaces and quotes are not included.
pub(super) fn needs_escape(text: &[u8]) -> bool {
    match text.first() {
        Some(byte) => match CLASSES[usize::from(*byte)] {
            ByteClass::Special | ByteClass::LineFeed => true,
            ByteClass::MultibyteStart => {
                let (special, is_break) = classify_multibyte(text);
                special || is_break
            }
            _ => matches!(byte, b'"' | b'\\'),
        },
        None => false,
    }
}
