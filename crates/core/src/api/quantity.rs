//! Quantities: bytes of a log, size of a disk.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A quantity as it was written: `8192` or `"10M"`. The one of `k8s_openapi` is a string only, and would change how a
/// number is written back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Quantity {
    /// A plain number.
    Number(i64),
    /// A number with a unit, in Kubernetes notation.
    Text(String),
}

impl Quantity {
    /// Parses the text.
    ///
    /// # Errors
    /// The text is not a quantity.
    pub fn parse(&self) -> Result<QuantityValue, InvalidQuantity> {
        match self {
            Self::Number(number) => Ok(QuantityValue {
                nano: i128::from(*number) * NANO,
                unit: QuantityFormat::Decimal,
            }),
            Self::Text(text) => text.parse(),
        }
    }
}

/// The text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a number with an optional unit: k, M, G, T, Ki, Mi, Gi, Ti")]
pub struct InvalidQuantity;

/// The scale of [`QuantityValue::nano`].
const NANO: i128 = 1_000_000_000;
/// Decimal suffixes, each a thousand times the previous one.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Binary suffixes, each 1024 times the previous one.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The notation of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuantityFormat {
    Decimal,
    Binary,
    Exponent,
}

/// A quantity with a precision of one billionth. Displayed as Kubernetes does, with the largest
/// unit that needs no fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantityValue {
    nano: i128,
    unit: QuantityFormat,
}

impl QuantityValue {
    /// The value, rounded up to an integer.
    #[must_use]
    pub fn value(self) -> i64 {
        let whole = self.nano.div_euclid(NANO) + i128::from(self.nano.rem_euclid(NANO) > 0);
        i64::try_from(whole).unwrap_or(if whole > 0 { i64::MAX } else { i64::MIN })
    }
}

impl FromStr for QuantityValue {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
        let (number, suffix) = rest.split_at(end.unwrap_or(rest.len()));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(InvalidQuantity);
        }
        let (unit, numerator, power) = unit(suffix)?;
        // Digits beyond this precision can only round up.
        let kept = &fraction[..fraction.len().min(27)];
        let digits: i128 = format!("0{whole}{kept}").parse().map_err(|_| InvalidQuantity)?;
        let power = power + 9 - i32::try_from(kept.len()).map_err(|_| InvalidQuantity)?;
        let product = digits.checked_mul(numerator);
        let scale = 10i128.checked_pow(power.unsigned_abs()).ok_or(InvalidQuantity)?;
        let nano = if power >= 0 {
            product.and_then(|product| product.checked_mul(scale)).ok_or(InvalidQuantity)?
        } else {
            let product = product.ok_or(InvalidQuantity)?;
            product / scale + i128::from(product % scale > 0)
        };
        Ok(Self { nano: if negative { -nano } else { nano }, unit })
    }
}

/// The factor of a suffix, and its power of ten.
fn unit(suffix: &str) -> Result<(QuantityFormat, i128, i32), InvalidQuantity> {
    if let Some(at) = BINARY.iter().position(|unit| *unit == suffix) {
        return Ok((QuantityFormat::Binary, 1 << (10 * (at + 1)), 0));
    }
    if let Some(at) = DECIMAL.iter().position(|unit| *unit == suffix) {
        return Ok((
            QuantityFormat::Decimal,
            1,
            3 * i32::try_from(at).map_err(|_| InvalidQuantity)? - 9,
        ));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(InvalidQuantity)?;
    let exponent: i32 = exponent.parse().map_err(|_| InvalidQuantity)?;
    if !(-30..=30).contains(&exponent) {
        return Err(InvalidQuantity);
    }
    Ok((QuantityFormat::Exponent, 1, exponent))
}

impl fmt::Display for QuantityValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return formatter.write_str("0");
        }
        let small = self.nano.abs() < 1024 * NANO;
        if self.unit == QuantityFormat::Binary && !small {
            let mut number = i128::from(self.value());
            let mut unit = "";
            for larger in BINARY {
                if number % 1024 != 0 {
                    break;
                }
                number /= 1024;
                unit = larger;
            }
            return write!(formatter, "{number}{unit}");
        }
        let (mut number, mut at) = (self.nano, 0);
        while number % 1000 == 0 && at + 1 < DECIMAL.len() {
            number /= 1000;
            at += 1;
        }
        match (self.unit, i32::try_from(at).unwrap_or_default() * 3 - 9) {
            (QuantityFormat::Exponent, 0) => write!(formatter, "{number}"),
            (QuantityFormat::Exponent, power) => write!(formatter, "{number}e{power}"),
            _ => write!(formatter, "{number}{}", DECIMAL[at]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed_and_displayed_as_in_kubernetes() {
        for (text, value, shown) in [
            ("0", 0, "0"),
            ("8192", 8192, "8192"),
            ("8k", 8000, "8k"),
            ("8000", 8000, "8k"),
            ("50Mi", 52_428_800, "50Mi"),
            ("52m", 1, "52m"),
            ("8G", 8_000_000_000, "8G"),
            ("8192Mi", 8 << 30, "8Gi"),
            ("0.5Gi", 512 << 20, "512Mi"),
            ("1.5", 2, "1500m"),
            ("-1G", -1_000_000_000, "-1G"),
            ("1e3", 1000, "1e3"),
            ("512Ki", 512 << 10, "512Ki"),
            ("0.001Ki", 2, "1024m"),
            (".5", 1, "500m"),
            ("9E", 9_000_000_000_000_000_000, "9E"),
        ] {
            let amount: QuantityValue = text.parse().unwrap();
            assert_eq!((amount.value(), amount.to_string().as_str()), (value, shown), "{text}");
        }
        assert_eq!(Quantity::Number(-1).parse().unwrap().value(), -1);
        for bad in ["", "-", ".", "1x", "1.2.3", "Ki", "1 k", "1e", "1e99", "１"] {
            assert_eq!(bad.parse::<QuantityValue>(), Err(InvalidQuantity), "{bad}");
        }
    }
}
