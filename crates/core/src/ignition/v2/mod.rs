//! Ignition configs of specification 2: parsed (2.0, 2.1, 2.2), upgraded to 2.2, freed of
//! duplicates, converted to specification 3, and converted back from it.
//!
//! ```text
//! JSON 2.0 ─┐
//! JSON 2.1 ─┼─ parse ─→ Config (2.2) ─ remove_duplicates ─ to_v3 ─→ schema::Config (3.5)
//! JSON 2.2 ─┘              ↑ from_v3 ─────────────────────────────── schema::Config (3.2)
//! ```
//!
//! There is one set of types ([`schema`]); a field knows the minor version that introduced it.
//! Errors and warnings are those of Ignition 0.35 and of the Machine Config Operator's converter.
//! Known differences: Ignition 0.35 parses a config that is broken as specification 2 again as
//! specification 1 if it also contains `ignitionVersion: 1`; and it crashes on a 2.0 config that
//! has a URL with user information, which is an error here.

mod deduplicate;
mod from_v3;
mod lift_version;
pub mod schema;
mod source;
mod to_v3;
mod validate;

use serde_json::Value;

use super::config_part::{ConfigDecoder, ConfigPart as _};
use super::report::IgnitionReport;

pub use deduplicate::remove_duplicates;
pub use from_v3::{DowngradeError, from_v3};
pub use schema::Config;
pub use to_v3::{UpgradeError, to_v3};
pub use validate::validate;

/// Parses a config whose version is `2.<minor>.0` (0, 1 or 2) and translates it to 2.2, as Ignition
/// 0.35 does. `Err` is the report that makes the config unusable; `Ok` carries the warnings.
pub fn parse(raw: &Value, minor: u8) -> Result<(Config, IgnitionReport), IgnitionReport> {
    let mut cx = ConfigDecoder::new(minor);
    let mut config = Config::default();
    config.decode(raw, &mut cx);
    if minor == 0 {
        source::rewrite_all(&mut config, &mut cx.report);
    }
    if cx.report.is_fatal() {
        return Err(cx.report);
    }
    let mut report = validate::validate_as(&config, minor);
    report.merge(cx.report);
    if report.is_fatal() {
        return Err(report);
    }
    lift_version::lift_to_2_2(&mut config, minor);
    Ok((config, report))
}
