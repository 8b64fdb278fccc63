//! Parses and formats Kubernetes quantities ("500m", "20Gi", "1e3") as whole thousandths.
//! <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>

/// The error of a text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("quantity {0:?} is not understood; write it as 2, 500m, 1.5 or 20Gi")]
pub struct QuantityError(String);

/// Parses a non-negative quantity into thousandths, rounded up and capped at `i64::MAX`.
pub fn parse_milli(text: &str) -> Result<i64, QuantityError> {
    milli(text).ok_or_else(|| QuantityError(text.to_owned()))
}

fn milli(text: &str) -> Option<i64> {
    let body = text.strip_prefix('+').unwrap_or(text);
    let end = body
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(body.len());
    let (number, suffix) = body.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    // The value is digits x 10^ten x 2^two. `ten` becomes 3 larger below, for thousandths.
    let (ten, two) = exponents(suffix)?;
    let fraction = fraction.trim_end_matches('0');
    let mut digits: u128 = 0;
    for d in whole.bytes().chain(fraction.bytes()) {
        digits = digits.checked_mul(10)?.checked_add(u128::from(d - b'0'))?;
    }
    let ten = ten - i32::try_from(fraction.len()).ok()? + 3;
    let scaled = digits.checked_mul(1u128 << two);
    let value = if ten >= 0 {
        scaled.and_then(|s| s.checked_mul(10u128.checked_pow(ten.unsigned_abs())?))
    } else {
        match 10u128.checked_pow(ten.unsigned_abs()) {
            Some(div) => scaled.map(|s| s.div_ceil(div)),
            None => Some(u128::from(digits > 0)),
        }
    };
    Some(
        value
            .and_then(|v| i64::try_from(v).ok())
            .unwrap_or(i64::MAX),
    )
}

fn exponents(suffix: &str) -> Option<(i32, u32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let n: i32 = exponent.parse().ok()?;
            (n.clamp(-60, 60), 0)
        }
    })
}

/// Formats an amount in thousandths: "2", "500m", or "20Gi" if it is a multiple of a binary unit.
pub fn format_milli(milli: i64) -> String {
    if milli % 1000 != 0 {
        return format!("{milli}m");
    }
    let units = milli / 1000;
    for (suffix, shift) in [("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)] {
        if units != 0 && units % (1i64 << shift) == 0 {
            return format!("{}{suffix}", units >> shift);
        }
    }
    units.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parse_milli_agrees_with_kubernetes() {
        for (text, want) in [
            ("0", 0),
            ("2", 2_000),
            ("500m", 500),
            ("1.5", 1_500),
            (".5", 500),
            ("1e3", 1_000_000),
            ("1E3", 1_000_000),
            ("2E", i64::MAX),
            ("1Ki", 1_024_000),
            ("1.5Gi", 1_610_612_736_000),
            ("100n", 1),
            ("1u", 1),
        ] {
            assert_eq!(parse_milli(text).unwrap(), want, "{text}");
        }
        for text in ["", "Gi", "1.2.3", "-1", "1x", "1 Gi", "e3", "1e", "."] {
            assert!(parse_milli(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parse_never_panics(text in ".{0,40}") { let _ = parse_milli(&text); }

        #[test]
        fn numbers_with_any_suffix(text in "[0-9]{0,40}\\.?[0-9]{0,40}(n|u|m|k|M|G|T|P|E|Ki|Ei|e-?[0-9]{1,9})?") {
            let _ = parse_milli(&text);
        }

        #[test]
        fn text_and_back(milli in 0i64..1 << 52) {
            prop_assert_eq!(parse_milli(&format_milli(milli)).unwrap(), milli);
        }
    }
}
