//! Templates that are known to render differently than in Go.

/// Known differences of the engine: complex numbers, floats that Go writes with an exponent, the
/// smallest number, a field of nil, loop variables in `else`, an empty command, odd formats.
pub const KNOWN: &[&str] = &[
    "{{1i}}",
    "{{1e21}}",
    "{{-9223372036854775808}}",
    "{{.Nil.X}}",
    "{{range $i, $e := .Nothing}}a{{else}}{{$i}}{{end}}",
    "{{print |}}",
    "{{printf \"%\"}}",
    "{{printf \"% x\" \"hello\"}}",
];
