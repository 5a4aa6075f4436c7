//! Random templates: parts that fit together more often than not.

use crate::support::Rng;

/// A template of a few parts.
pub fn template(rng: &mut Rng) -> String {
    let mut text = body(rng, 3);
    if rng.chance(1, 8) {
        text.push_str("{{define \"t\"}}<");
        text.push_str(&body(rng, 1));
        text.push_str(">{{end}}");
        let call = format!("template \"t\" {}", argument(rng, 1));
        text.push_str(&action(rng, &call));
    }
    text
}

fn body(rng: &mut Rng, depth: usize) -> String {
    (0..=rng.below(3)).map(|_| piece(rng, depth)).collect()
}

fn piece(rng: &mut Rng, depth: usize) -> String {
    let kind = rng.below(if depth == 0 { 5 } else { 12 });
    match kind {
        0 | 1 => {
            (*rng.pick(&["text", " ", "\n", "a\n  b", "  \t", "}", "{ {", "-", ": "])).to_owned()
        }
        2..=4 => {
            let pipe = pipeline(rng, depth);
            action(rng, &pipe)
        }
        5 => {
            let value = pipeline(rng, depth);
            let declare = action(rng, &format!("$x := {value}"));
            let inner = body(rng, depth - 1).replace(" .Name", " $x");
            format!("{declare}{inner}{}", action(rng, "$x"))
        }
        6 | 7 => branch(rng, "if", depth),
        8 => branch(rng, "with", depth),
        9 | 10 => branch(rng, "range", depth),
        _ => {
            let list = rng.pick(&[".List", ".Map", ".Numbers", ".People", ".Nested", "3"]);
            let head = action(rng, &format!("range $i, $v := {list}"));
            let stop = match rng.below(4) {
                0 => "{{if eq $i 1}}{{break}}{{end}}",
                1 => "{{if eq $i 0}}{{continue}}{{end}}",
                _ => "",
            };
            format!(
                "{head}{stop}{{{{$i}}}}={{{{$v}}}}{}{}",
                body(rng, depth - 1),
                action(rng, "end")
            )
        }
    }
}

fn branch(rng: &mut Rng, word: &str, depth: usize) -> String {
    let condition = pipeline(rng, depth - 1);
    let mut text = action(rng, &format!("{word} {condition}"));
    text.push_str(&body(rng, depth - 1));
    if word == "if" && rng.chance(1, 4) {
        let condition = pipeline(rng, depth - 1);
        text.push_str(&action(rng, &format!("else if {condition}")));
        text.push_str(&body(rng, depth - 1));
    }
    if rng.chance(1, 2) {
        text.push_str(&action(rng, "else"));
        text.push_str(&body(rng, depth - 1));
    }
    text.push_str(&action(rng, "end"));
    text
}

fn action(rng: &mut Rng, inside: &str) -> String {
    let left = rng.pick(&["{{", "{{", "{{", "{{ ", "{{- ", "{{-  "]);
    let right = rng.pick(&["}}", "}}", "}}", " }}", " -}}", "  -}}"]);
    format!("{left}{inside}{right}")
}

fn pipeline(rng: &mut Rng, depth: usize) -> String {
    let mut text = command(rng, depth);
    while rng.chance(1, 4) {
        let next = rng.pick(&[
            "print",
            "printf \"%v\"",
            "printf \"%-4v;\"",
            "printf \"<%5v>\"",
            "len",
            "not",
            "html",
            "js",
            "urlquery",
            "eq 1",
            "println",
            "toString",
            "indent 2",
            "and true",
            "or 0",
            "index .List",
            "printf \"%s-%s\" \"a\"",
        ]);
        text = format!("{text} | {next}");
    }
    text
}

fn command(rng: &mut Rng, depth: usize) -> String {
    let mut one = || argument(rng, depth);
    let (a, b, c) = (one(), one(), one());
    match rng.below(16) {
        0..=4 => a,
        5 => format!("eq {a} {b}"),
        6 => format!("{} {a} {b}", rng.pick(&["ne", "lt", "le", "gt", "ge"])),
        7 => format!("and {a} {b}"),
        8 => format!("or {a} {b} {c}"),
        9 => format!("not {a}"),
        10 => format!("print {a} {b}"),
        11 => format!("printf \"%v|%v\" {a} {b}"),
        12 => format!("len {a}"),
        13 => format!(
            "index {} {}",
            rng.pick(&[".List", ".Map", ".Nested", ".Numbers"]),
            rng.pick(&["0", "1", "2", "\"a\""])
        ),
        14 => format!(
            "slice {} {}",
            rng.pick(&[".List", ".Name", ".Numbers"]),
            rng.pick(&["0", "1", "0 1", "1 2", "9"])
        ),
        _ => format!("println {a}"),
    }
}

fn argument(rng: &mut Rng, depth: usize) -> String {
    if depth > 0 && rng.chance(1, 4) {
        return format!("({})", pipeline(rng, depth - 1));
    }
    (*rng.pick(&[
        ".",
        ".Name",
        ".Empty",
        ".Text",
        ".Int",
        ".Zero",
        ".Negative",
        ".Float",
        ".Yes",
        ".No",
        ".List",
        ".Numbers",
        ".Nothing",
        ".Map",
        ".NoMap",
        ".Map.a",
        ".Deep.A.B.C",
        ".People",
        ".Nested",
        "$",
        "$.Name",
        "$.List",
        ".Unicode",
        "1",
        "0",
        "-3",
        "2.5",
        "\"s\"",
        "\"\"",
        "`raw`",
        "true",
        "false",
        "'x'",
        ".Counts",
        ".Missing",
        ".Nil",
        "$.Int",
    ]))
    .to_owned()
}
