//! Ignition configs: parse, validate, convert between versions, merge, decode contents.
