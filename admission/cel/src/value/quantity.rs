//! Quantities with the semantics of apimachinery's `resource.Quantity`. A number of up to 18 digits
//! is `small`; a larger one is a decimal, for which `isInteger` is false even if its value is
//! integral.

use std::cmp::Ordering;

use crate::error::Invalid;

/// A quantity: digits times a power of ten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    pub(crate) digits: i128,
    pub(crate) exponent: i32,
    pub(crate) small: bool,
}

/// Returns `digits` times ten to the power of `power`; `None` if that does not fit.
fn scaled(digits: i128, power: i32) -> Option<i128> {
    if digits == 0 {
        return Some(0);
    }
    10_i128
        .checked_pow(u32::try_from(power).ok()?)
        .and_then(|factor| digits.checked_mul(factor))
}

impl Quantity {
    pub(crate) fn new(digits: i128, exponent: i32, small: bool) -> Self {
        Self {
            digits,
            exponent,
            small,
        }
    }

    /// Parses a quantity. Fails for a text that is not a quantity or has more than 36 digits.
    pub(crate) fn parse(text: &str) -> Result<Self, Invalid> {
        const FORM: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if text.is_empty() {
            return Err(FORM.into());
        }
        let rest = rest.trim_start_matches('0');
        let split = |text: &str| {
            text.find(|c: char| !c.is_ascii_digit())
                .unwrap_or(text.len())
        };
        let (whole, rest) = rest.split_at(split(rest));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(split(rest)),
            None => ("", rest),
        };
        let letters = suffix
            .find(|c: char| !"eEinumkKMGTP".contains(c))
            .unwrap_or(suffix.len());
        let number = &suffix[letters..];
        let digits = number.strip_prefix(['-', '+']).unwrap_or(number);
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(FORM.into());
        }
        let (binary, power) = suffix_power(suffix).ok_or("unable to parse quantity's suffix")?;
        if whole.len() + fraction.len() > 36 {
            return Err(
                "unable to parse numeric part of quantity: it has more than 36 digits".into(),
            );
        }
        let value: i128 = format!("0{whole}{fraction}").parse().map_err(|_| FORM)?;
        let value = if negative { -value } else { value };
        let decimals = fraction.len() as i32;
        // A number below one counts the zero before the point as a digit.
        let places = whole.len().max(1) as i32 + decimals;
        let room = match (binary, decimals) {
            (false, _) => 18 - places,
            (true, 0) => 15 - whole.len().max(1) as i32 - power * 3 / 10 - 1,
            (true, _) => -1,
        };
        let exponent = if binary {
            -decimals
        } else {
            power.saturating_sub(decimals)
        };
        let factor = if binary { 1_i128 << power } else { 1 };
        if room >= 0 && exponent >= -9 {
            let digits = value * factor;
            if i64::try_from(digits).is_ok() {
                return Ok(Self::new(digits, exponent, true));
            }
        }
        let digits = value
            .checked_mul(factor)
            .ok_or("the quantity is too large")?;
        let mut large = Self::new(digits, exponent, false).to_nano();
        let most = Self::new(i128::from(i64::MAX), 0, false);
        let size = Self::new(large.digits.abs(), large.exponent, false);
        if binary && size.compare(&most).is_gt() {
            large = Self::new(most.digits * digits.signum(), 0, false);
        }
        Ok(large)
    }

    /// Returns the quantity rounded away from zero to billionths.
    fn to_nano(self) -> Self {
        if self.exponent >= -9 || self.digits == 0 {
            return self;
        }
        let drop = self.exponent.saturating_add(9).unsigned_abs();
        let digits = match 10_i128.checked_pow(drop) {
            Some(factor) => {
                let rest = i128::from(self.digits % factor != 0) * self.digits.signum();
                self.digits / factor + rest
            }
            None => self.digits.signum(),
        };
        Self::new(digits, -9, false)
    }

    pub(crate) fn integer(&self) -> Option<i64> {
        if !self.small || self.exponent < 0 {
            return None;
        }
        i64::try_from(scaled(self.digits, self.exponent)?).ok()
    }

    pub(crate) fn float(&self) -> f64 {
        match self.exponent {
            0 => self.digits as f64,
            exponent => self.digits as f64 * 10_f64.powi(exponent),
        }
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let signs = self.digits.signum().cmp(&other.digits.signum());
        if signs.is_ne() || self.digits == 0 {
            return signs;
        }
        let size = |quantity: &Self| {
            i64::from(quantity.exponent)
                + i64::from(quantity.digits.unsigned_abs().checked_ilog10().unwrap_or(0))
        };
        let by_size = size(self).cmp(&size(other));
        if by_size.is_ne() {
            return if self.digits > 0 {
                by_size
            } else {
                by_size.reverse()
            };
        }
        let lowest = self.exponent.min(other.exponent);
        match (
            scaled(self.digits, self.exponent - lowest),
            scaled(other.digits, other.exponent - lowest),
        ) {
            (Some(a), Some(b)) => a.cmp(&b),
            // The quantities have the same magnitude, but too many digits to compare exactly.
            _ => self.float().total_cmp(&other.float()),
        }
    }

    pub(crate) fn plus(&self, other: &Self) -> Option<Self> {
        let both_small = self.small && other.small;
        if both_small && other.digits == 0 {
            return Some(*self);
        }
        if both_small && self.digits == 0 {
            return Some(*other);
        }
        let exponent = self.exponent.min(other.exponent);
        let a = scaled(self.digits, self.exponent.checked_sub(exponent)?)?;
        let b = scaled(other.digits, other.exponent.checked_sub(exponent)?)?;
        let digits = a.checked_add(b)?;
        let fits = |digits: i128| i64::try_from(digits).is_ok();
        let small = both_small && fits(a) && fits(b) && fits(digits);
        Some(Self::new(digits, exponent, small))
    }
}

/// Returns whether the suffix is binary and its power of two, or else of ten; `None` for an unknown
/// suffix.
fn suffix_power(suffix: &str) -> Option<(bool, i32)> {
    Some(match suffix {
        "n" => (false, -9),
        "u" => (false, -6),
        "m" => (false, -3),
        "" => (false, 0),
        "k" => (false, 3),
        "M" => (false, 6),
        "G" => (false, 9),
        "T" => (false, 12),
        "P" => (false, 15),
        "E" => (false, 18),
        "Ki" => (true, 10),
        "Mi" => (true, 20),
        "Gi" => (true, 30),
        "Ti" => (true, 40),
        "Pi" => (true, 50),
        "Ei" => (true, 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            (false, exponent.parse().ok()?)
        }
    })
}
