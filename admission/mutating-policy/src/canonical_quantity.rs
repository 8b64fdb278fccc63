//! Converts quantities to the canonical form in which the API server writes them: without a
//! fraction, and with the largest suffix that does not lose precision.
//! <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>

const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Returns the canonical form of a quantity. Other texts, quantities with an exponent and
/// quantities finer than a billionth are returned unchanged.
pub(crate) fn canonical(quantity: &str) -> String {
    canonicalize(quantity).unwrap_or_else(|| quantity.to_owned())
}

/// Returns the canonical form of a quantity; `None` if the text is not a quantity, or consists of
/// one or two digits and is already canonical.
pub(crate) fn canonicalize(quantity: &str) -> Option<String> {
    if quantity.len() < 3 && quantity.bytes().all(|b| b.is_ascii_digit()) {
        let is_canonical = !quantity.is_empty() && (quantity == "0" || !quantity.starts_with('0'));
        if is_canonical {
            return None;
        }
    }
    let end = quantity
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-' && c != '+')
        .unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = fraction.trim_end_matches('0');
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits: i128 = if fraction.is_empty() {
        whole.parse().ok()?
    } else {
        format!("{whole}{fraction}").parse().ok()?
    };
    let decimals = i32::try_from(fraction.len()).ok()?;
    if let Some(power) = BINARY.iter().skip(1).position(|s| *s == suffix) {
        let ten = 10_i128.checked_pow(decimals.unsigned_abs())?;
        let bytes = digits.checked_mul(1024_i128.checked_pow(u32::try_from(power).ok()? + 1)?)?;
        return (bytes % ten == 0).then(|| binary(bytes / ten));
    }
    let power = DECIMAL.iter().position(|s| *s == suffix)?;
    decimal(digits, i32::try_from(power).ok()? * 3 - 9 - decimals)
}

fn binary(bytes: i128) -> String {
    if bytes.abs() < 1024 {
        return decimal(bytes, 0).unwrap_or_else(|| bytes.to_string());
    }
    let (mut count, mut suffix) = (bytes, 0);
    while count % 1024 == 0 && suffix + 1 < BINARY.len() {
        count /= 1024;
        suffix += 1;
    }
    format!("{count}{}", BINARY[suffix])
}

/// Returns `digits` times ten to the power of `power`; `None` if there is no suffix for it.
fn decimal(digits: i128, power: i32) -> Option<String> {
    if digits == 0 {
        return Some("0".to_owned());
    }
    let (mut digits, mut power) = (digits, power);
    while power % 3 != 0 {
        digits = digits.checked_mul(10)?;
        power -= 1;
    }
    while digits % 1000 == 0 && power < 18 {
        digits /= 1000;
        power += 3;
    }
    let suffix = usize::try_from((power + 9) / 3)
        .ok()
        .filter(|_| power >= -9)?;
    Some(format!("{digits}{}", DECIMAL.get(suffix)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_form_is_that_of_the_api_server() {
        for (given, expected) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1000Mi", "1000Mi"),
            ("0.5Ki", "512"),
            ("437.5Ki", "448000"),
            ("1000", "1k"),
            ("1500", "1500"),
            ("100", "100"),
            ("0", "0"),
            ("00.10", "100m"),
            ("-2000m", "-2"),
            ("1e3", "1e3"),
            ("lots", "lots"),
            ("", ""),
            ("1.2.3", "1.2.3"),
            ("5n", "5n"),
            ("0.5n", "0.5n"),
        ] {
            assert_eq!(canonical(given), expected, "{given}");
        }
    }

    proptest::proptest! {
        #[test]
        fn canonical_form_is_stable(number in "[0-9]{1,6}(\\.[0-9]{1,3})?", suffix in "(m|k|M|Ki|Gi)?") {
            // 437.5Ki becomes 448000, which on its own is decimal: 448k.
            let once = canonical(&canonical(&format!("{number}{suffix}")));
            proptest::prop_assert_eq!(canonical(&once), once);
        }

        #[test]
        fn random_text_does_not_panic(text in "\\PC{0,30}") {
            canonical(&text);
        }
    }
}
