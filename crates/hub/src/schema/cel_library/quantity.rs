//! Quantities: `quantity("1.5Gi").isGreaterThan(quantity("1G"))`.

use std::any::Any;

use cel::common::types::{CelBool, CelDouble, CelInt, CelString, Type};
use cel::common::value::{StaticVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

static QUANTITY: Type = Type::new_unspecified_type("kubernetes.Quantity");

/// Smaller parts are rounded up, as in Kubernetes.
const NANOS: i128 = 1_000_000_000;

/// A quantity, in billionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Quantity(i128);

impl Val for Quantity {
    fn get_type(&self) -> &Type {
        <Self as Val>::cel_type()
    }

    fn cel_type() -> &'static Type {
        &QUANTITY
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| other == self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(*self)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Quantity {}

pub(super) fn register(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn quantity: (CelString) -> Result<Quantity>)?;
    cel::add_overload!(env, fn is_quantity: (CelString) -> CelBool, name = "isQuantity")?;
    cel::add_member_overload!(env, fn sign: (Quantity) -> CelInt)?;
    cel::add_member_overload!(env, fn is_greater: (Quantity, Quantity) -> CelBool,
        name = "isGreaterThan")?;
    cel::add_member_overload!(env, fn is_less: (Quantity, Quantity) -> CelBool, name = "isLessThan")?;
    cel::add_member_overload!(env, fn compare: (Quantity, Quantity) -> CelInt, name = "compareTo")?;
    cel::add_member_overload!(env, fn as_float: (Quantity) -> CelDouble,
        name = "asApproximateFloat")?;
    cel::add_member_overload!(env, fn as_integer: (Quantity) -> Result<CelInt>, name = "asInteger")?;
    cel::add_member_overload!(env, fn is_integer: (Quantity) -> CelBool, name = "isInteger")?;
    cel::add_member_overload!(env, fn add: (Quantity, Quantity) -> Quantity)?;
    cel::add_member_overload!(env, fn add_int: (Quantity, CelInt) -> Quantity, name = "add")?;
    cel::add_member_overload!(env, fn sub: (Quantity, Quantity) -> Quantity)?;
    cel::add_member_overload!(env, fn sub_int: (Quantity, CelInt) -> Quantity, name = "sub")
}

fn quantity(text: &CelString<'_>) -> Result<Quantity, ExecutionError> {
    let why = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    parse(text.inner()).ok_or_else(|| ExecutionError::function_error("quantity", why))
}

fn is_quantity(text: &CelString<'_>) -> CelBool {
    CelBool::from(parse(text.inner()).is_some())
}

fn sign(value: &Quantity) -> CelInt {
    CelInt::from(i64::from(value.0.signum() as i8))
}

fn is_greater(left: &Quantity, right: &Quantity) -> CelBool {
    CelBool::from(left > right)
}

fn is_less(left: &Quantity, right: &Quantity) -> CelBool {
    CelBool::from(left < right)
}

fn compare(left: &Quantity, right: &Quantity) -> CelInt {
    CelInt::from(left.cmp(right) as i64)
}

#[expect(clippy::cast_precision_loss, reason = "the function is approximate")]
fn as_float(value: &Quantity) -> CelDouble {
    CelDouble::from(value.0 as f64 / NANOS as f64)
}

fn whole(value: Quantity) -> Option<i64> {
    (value.0 % NANOS == 0).then(|| i64::try_from(value.0 / NANOS).ok()).flatten()
}

fn as_integer(value: &Quantity) -> Result<CelInt, ExecutionError> {
    let why = "cannot convert value to integer";
    whole(*value).map(CelInt::from).ok_or_else(|| ExecutionError::function_error("asInteger", why))
}

fn is_integer(value: &Quantity) -> CelBool {
    CelBool::from(whole(*value).is_some())
}

fn add(left: &Quantity, right: &Quantity) -> Quantity {
    Quantity(left.0.saturating_add(right.0))
}

fn add_int(left: &Quantity, right: &CelInt) -> Quantity {
    Quantity(left.0.saturating_add(i128::from(*right.inner()) * NANOS))
}

fn sub(left: &Quantity, right: &Quantity) -> Quantity {
    Quantity(left.0.saturating_sub(right.0))
}

fn sub_int(left: &Quantity, right: &CelInt) -> Quantity {
    Quantity(left.0.saturating_sub(i128::from(*right.inner()) * NANOS))
}

/// Parses `12`, `-0.5`, `1.5Gi`, `100m`, `2e3`.
fn parse(text: &str) -> Option<Quantity> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (base, exponent) = multiplier(suffix)?;
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        // Beyond what can be represented, the largest quantity stands for all.
        value = value.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    value = value.checked_mul(base)?;
    // In billionths: ten to the power of nine, of the suffix, and of the digits after the point.
    let shift = 9 + exponent - i32::try_from(fraction.len()).ok()?;
    let factor = 10_i128.checked_pow(shift.unsigned_abs())?;
    let value = match shift {
        0.. => value.checked_mul(factor)?,
        _ => value / factor + i128::from(value % factor != 0),
    };
    Some(Quantity(if is_negative { -value } else { value }))
}

/// The factor of a suffix: a power of 1024, or a power of ten.
fn multiplier(suffix: &str) -> Option<(i128, i32)> {
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(power) = binary.iter().position(|known| *known == suffix) {
        return Some((1024_i128.pow(u32::try_from(power).ok()? + 1), 0));
    }
    let exponent = match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => {
            let digits = suffix.strip_prefix(['e', 'E'])?;
            digits.parse::<i32>().ok().filter(|exponent| exponent.abs() <= 30)?
        }
    };
    Some((1, exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed() {
        let table = [
            ("1", Some(NANOS)),
            ("-0.5", Some(-NANOS / 2)),
            ("100m", Some(NANOS / 10)),
            ("1.5Ki", Some(1536 * NANOS)),
            ("2e3", Some(2000 * NANOS)),
            ("1E", Some(1_000_000_000_000_000_000 * NANOS)),
            (".5", Some(NANOS / 2)),
            ("1n", Some(1)),
            ("0.1n", Some(1)),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("1x", None),
            ("1 k", None),
            ("1e99", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text).map(|it| it.0), expected, "{text}");
        }
    }
}
