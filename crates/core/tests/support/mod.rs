//! What the differential tests share: the oracle process, a deterministic random number generator,
//! and a generator of strings that are hard to encode.
//!
//! The oracle is a small Go binary (`tests/oracle`) that calls the Go libraries whose results we
//! must match. `make test` builds it and sets `MACHINIST_ORACLE` to its path.
pub mod configs;
mod storage_configs;

use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

/// The seed if `MACHINIST_SEED` is not set: the same on every run and every machine.
const DEFAULT_SEED: u64 = 0x4d61_6368_696e_6973;

/// The seed of this run: `MACHINIST_SEED` (decimal, or hexadecimal after `0x`), or a fixed one.
pub fn seed() -> u64 {
    let Ok(text) = std::env::var("MACHINIST_SEED") else { return DEFAULT_SEED };
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|error| panic!("MACHINIST_SEED={text}: {error}"))
}

/// A child process that answers each JSON line with one JSON line.
///
/// Dropping it closes its input and waits for it to exit.
#[derive(Debug)]
pub struct Oracle {
    child: Child,
    input: Option<BufWriter<ChildStdin>>,
    output: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts the binary in `MACHINIST_ORACLE`. Without it the test fails: a differential test that
    /// compares with nothing must not pass.
    pub fn start() -> Self {
        let Some(path) = std::env::var_os("MACHINIST_ORACLE") else {
            panic!("MACHINIST_ORACLE not set: run through make test");
        };
        let mut child = Command::new(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("MACHINIST_ORACLE={}: {error}", path.display()));
        let input = child.stdin.take().map(BufWriter::new);
        let output = child.stdout.take().map(BufReader::new).expect("stdout is piped");
        Self { child, input, output }
    }

    /// Sends one request and waits for the response.
    pub fn request(&mut self, question: &Value) -> Value {
        let mut answers = self.request_all(std::slice::from_ref(question));
        answers.pop().expect("one answer for one question")
    }

    /// Sends many requests at once, and returns the responses in the same order.
    pub fn request_all(&mut self, questions: &[Value]) -> Vec<Value> {
        let input = self.input.as_mut().expect("the input is open until the oracle is dropped");
        let output = &mut self.output;
        std::thread::scope(|scope| {
            // Requests must be written while responses are read, or both pipes fill up.
            let writer = scope.spawn(move || {
                for question in questions {
                    serde_json::to_writer(&mut *input, question)?;
                    input.write_all(b"\n")?;
                }
                input.flush()
            });
            let answers = questions.iter().map(|_| read_response(output)).collect();
            writer.join().expect("the writer does not panic").expect("the oracle reads on");
            answers
        })
    }
}

fn read_response(output: &mut BufReader<ChildStdout>) -> Value {
    let mut line = Vec::new();
    output.read_until(b'\n', &mut line).expect("the oracle's output can be read");
    assert!(!line.is_empty(), "the oracle ended before it answered");
    serde_json::from_slice(&line).expect("the oracle answers in JSON")
}

impl Drop for Oracle {
    fn drop(&mut self) {
        self.input = None;
        // The process is gone either way, so an error does not matter.
        let _ = self.child.wait();
    }
}

/// Random numbers that depend only on a seed (xorshift64*).
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A separate generator for each seed.
    pub fn new(seed: u64) -> Self {
        // Seeds that differ in one bit must not give similar numbers, and the state must not be
        // zero.
        let mixed = (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self((mixed ^ (mixed >> 31)).max(1))
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number from 0 up to, but not including, `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let high_bits = self.next_u64() >> 32;
        usize::try_from(high_bits).unwrap_or(0) % end.max(1)
    }

    /// True `times` out of `of` times.
    pub fn chance(&mut self, times: usize, of: usize) -> bool {
        self.below(of) < times
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// A character of any plane, more often one that text formats trip over.
    pub fn character(&mut self) -> char {
        const EDGES: [char; 24] = [
            '\u{0}',
            '\u{1}',
            '\t',
            '\u{b}',
            '\r',
            '\u{1b}',
            '\u{1f}',
            '\u{7f}',
            '\u{80}',
            '\u{85}',
            '\u{9f}',
            '\u{a0}',
            '\u{ad}',
            '\u{660}',
            '\u{2028}',
            '\u{2029}',
            '\u{d7ff}',
            '\u{e000}',
            '\u{feff}',
            '\u{fffd}',
            '\u{fffe}',
            '\u{ffff}',
            '\u{10000}',
            '\u{10ffff}',
        ];
        let end = match self.below(8) {
            0 => return *self.pick(&EDGES),
            1..4 => 0x80,
            4 => 0x400,
            5 => 0x3000,
            6 => 0x1_0000,
            _ => 0x11_0000,
        };
        u32::try_from(self.below(end)).ok().and_then(char::from_u32).unwrap_or('é')
    }

    /// A string of `least` to `most` parts of `alphabet`.
    pub fn string(&mut self, alphabet: &[&str], least: usize, most: usize) -> String {
        let length = least + self.below(most + 1 - least.min(most));
        (0..length).map(|_| *self.pick(alphabet)).collect()
    }

    /// A string that is hard to encode: words with a special meaning, quotes and marks, things like
    /// numbers and times, lines around the usual width, several lines, any character.
    pub fn adversarial_string(&mut self) -> String {
        match self.below(10) {
            0 => (*self.pick(&WORDS)).to_owned(),
            1 => self.string(&MARKS, 0, 8),
            2 => self.string(&NUMERIC, 1, 12),
            3 => self.time(),
            4 => self.words(" "),
            5 => self.words("\n"),
            6 => (0..self.below(12)).map(|_| self.character()).collect(),
            7 => {
                let word = *self.pick(&WORDS);
                self.mutated(word)
            }
            8 => {
                let text = self.words(" ");
                self.mutated(&text)
            }
            _ => {
                let text = self.adversarial_string();
                self.mutated(&text)
            }
        }
    }

    /// Something like a date or a time, rarely a valid one.
    fn time(&mut self) -> String {
        let mut text = self.string(&["2001", "0000", "1900", "2024", "201"], 1, 1);
        text += &self.string(&["-1-1", "-02-29", "-2-30", "-12-31", "-13-1", "-00-00"], 1, 1);
        text += &self.string(&["T", "t", " ", "   ", "-", ""], 1, 1);
        text += &self.string(&["1:2:3", "23:59:59", "24:00:00", "12:30", "00:60:1", ""], 1, 1);
        text += &self.string(&[".5", ",5", ".", ".1234567890123", ""], 1, 1);
        text + &self.string(&["Z", "z", "+01:00", "-24:60", "+25:00", "+1:00", " -5", ""], 1, 1)
    }

    /// Words separated by `separator`, and now and then by something else.
    fn words(&mut self, separator: &str) -> String {
        let mut text = String::new();
        let odd = 2 + self.below(30);
        for _ in 0..self.below(60) {
            if self.chance(1, odd) {
                text += &self.string(&MARKS, 1, 3);
            } else if self.chance(1, 30) {
                text += &"word".repeat(self.below(30));
            } else {
                text += &"lengthyword"[..self.below(11)];
            }
            text += if self.chance(1, odd) { " " } else { separator };
        }
        text
    }

    /// `text` with a few characters inserted, removed or replaced.
    fn mutated(&mut self, text: &str) -> String {
        let mut chars: Vec<char> = text.chars().collect();
        for _ in 0..=self.below(3) {
            let at = self.below(chars.len() + 1);
            let take = self.below(2).min(chars.len() - at);
            let with = match self.below(4) {
                0 => self.character().to_string(),
                1 => self.string(&NUMERIC, 0, 1),
                _ => self.string(&MARKS, 0, 2),
            };
            chars.splice(at..at + take, with.chars());
        }
        chars.into_iter().collect()
    }
}

/// Words that YAML, or a reader of it, takes for something other than a string.
const WORDS: [&str; 64] = [
    "",
    "~",
    "null",
    "Null",
    "NULL",
    "nULL",
    "y",
    "Y",
    "yes",
    "Yes",
    "YES",
    "yEs",
    "n",
    "N",
    "no",
    "No",
    "NO",
    "true",
    "True",
    "TRUE",
    "false",
    "False",
    "FALSE",
    "on",
    "On",
    "ON",
    "off",
    "Off",
    "OFF",
    "oFF",
    ".nan",
    ".NaN",
    ".inf",
    "-.inf",
    "+.Inf",
    "NaN",
    "Inf",
    "<<",
    "=",
    "0",
    "-0",
    "00",
    "1e3",
    "1e400",
    ".5e-3",
    "0x1F",
    "0b11",
    "0b-1",
    "0o17",
    "0o8",
    "019",
    "1_000",
    "1:20",
    "-1:59.5",
    "2001-01-01",
    "9223372036854775808",
    "18446744073709551616",
    "+9223372036854775808",
    "-0x8000000000000000",
    "-0x8000000000000001",
    "0xFFFFFFFFFFFFFFFF",
    "0x10000000000000000",
    "---",
    "...",
];

/// Characters with a special meaning, and some without.
const MARKS: [&str; 56] = [
    " ", " ", " ", " ", "  ", "\n", "\n", "\n\n", "\t", "\r", ":", ": ", ":", "#", " #", "-", "- ",
    "--", "?", "? ", ",", "[", "]", "{", "}", "&", "*", "!", "|", ">", "'", "'", "\"", "\\", "%",
    "@", "`", "<", "/", "=", "~", "_", ".", "a", "b", "Z", "0", "1", "9", "é", "日", "\u{85}",
    "\u{2028}", "\u{2029}", "\u{feff}", "😀",
];

/// The characters of numbers and times.
const NUMERIC: [&str; 32] = [
    "0", "0", "1", "1", "2", "3", "5", "6", "7", "8", "9", "12", "59", "60", "2001", "_", "_", "+",
    "-", ".", ".", ":", ":", "e", "E", "x", "0x", "0b", "0o", "T", "Z", " ",
];
