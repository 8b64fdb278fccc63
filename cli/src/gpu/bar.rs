use std::{ffi::OsString, fmt::Write, io::IsTerminal};

/// The width of a bar, in columns.
const BAR_COLUMNS: usize = 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TerminalStyle {
    pub(crate) unicode: bool,
    pub(crate) colour: bool,
}

/// The parts of a bar, in any unit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BarSegments {
    pub(crate) all: f64,
    pub(crate) used: f64,
    /// The part that is idle but unusable.
    pub(crate) fragmented: f64,
    /// True if the card is lost, so that no part of it is free.
    pub(crate) lost: bool,
}

impl TerminalStyle {
    pub(crate) fn of_stdout() -> Self {
        Self::from_env(
            |name| std::env::var_os(name),
            std::io::stdout().is_terminal(),
        )
    }

    fn from_env(var: impl Fn(&str) -> Option<OsString>, terminal: bool) -> Self {
        let set = |name: &str| {
            let value = var(name)?.to_string_lossy().into_owned();
            (!value.is_empty()).then_some(value)
        };
        // The first variable that is set counts.
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .find_map(set)
            .unwrap_or_default()
            .to_lowercase();
        Self {
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
            colour: terminal
                && set("NO_COLOR").is_none()
                && set("TERM").is_none_or(|t| t != "dumb"),
        }
    }

    /// Returns the characters for used, fragmented and free parts, and for lost cards.
    fn glyphs(self) -> [char; 4] {
        if self.unicode {
            ['█', '▒', '░', '×']
        } else {
            ['#', '%', '.', '!']
        }
    }

    pub(crate) fn legend(self) -> String {
        let [used, fragmented, free, lost] = self.glyphs();
        format!(
            "{used} used  {fragmented} free, but not usable by the next expected request  {free} free  {lost} lost"
        )
    }

    /// Draws used, then fragmented, then free cells. Any fragmented part shows.
    pub(crate) fn bar(self, parts: BarSegments) -> String {
        let [used_glyph, fragmented, free, lost] = self.glyphs();
        if parts.lost {
            return String::from(lost).repeat(BAR_COLUMNS);
        }
        let used = cells(parts.used, parts.all);
        let both = cells(parts.used + parts.fragmented, parts.all);
        let some = usize::from(parts.fragmented >= 0.5 && used < BAR_COLUMNS);
        let both = both.max(used + some);
        let bar = (0..BAR_COLUMNS).map(|i| match i {
            i if i < used => used_glyph,
            i if i < both => fragmented,
            _ => free,
        });
        bar.collect()
    }

    /// Returns a text in a colour, by its escape code; 0 is the terminal's own.
    pub(crate) fn tint(self, code: u8, text: &str) -> String {
        match code {
            1.. if self.colour => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            _ => text.to_owned(),
        }
    }

    pub(crate) fn paint(self, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let [used, fragmented, _, lost] = self.glyphs();
        let colour = |c: char| match c {
            c if c == used => 36,
            c if c == fragmented => 33,
            c if c == lost => 31,
            _ => 0,
        };
        let (mut out, mut now) = (String::new(), 0);
        for c in text.chars() {
            let next = colour(c);
            if next != now {
                _ = write!(out, "\u{1b}[{next}m");
                now = next;
            }
            out.push(c);
        }
        out
    }
}

fn cells(part: f64, all: f64) -> usize {
    if all <= 0.0 || part <= 0.0 {
        return 0;
    }
    let exact = part / all * BAR_COLUMNS as f64;
    if exact >= BAR_COLUMNS as f64 - 1e-9 {
        return BAR_COLUMNS;
    }
    (exact.round() as usize).clamp(1, BAR_COLUMNS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASCII: TerminalStyle = TerminalStyle {
        unicode: false,
        colour: false,
    };

    fn bar(used: f64, fragmented: f64) -> String {
        ASCII.bar(BarSegments {
            all: 1000.0,
            used,
            fragmented,
            lost: false,
        })
    }

    #[test]
    fn bar_shows_small_parts() {
        assert_eq!(bar(0.0, 0.0), "....................");
        assert_eq!(bar(1.0, 0.0), "#...................");
        assert_eq!(bar(999.0, 0.0), "###################.");
        assert_eq!(bar(1000.0, 0.0), "####################");
        assert_eq!(bar(1250.0, 0.0), "####################");
        assert_eq!(bar(500.0, 250.0), "##########%%%%%.....");
        assert_eq!(bar(500.0, 2.0), "##########%.........");
        assert_eq!(bar(250.0, 750.0), "#####%%%%%%%%%%%%%%%");
        let nothing = ASCII.bar(BarSegments::default());
        assert_eq!(nothing, "....................");
    }

    #[test]
    fn style_follows_locale_and_terminal() {
        let style = |vars: &[(&str, &str)], terminal| {
            let find = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|v| v.1.into());
            let style = TerminalStyle::from_env(find, terminal);
            (style.unicode, style.colour)
        };
        assert_eq!(style(&[], false), (false, false));
        assert_eq!(style(&[("LANG", "en_GB.UTF-8")], true), (true, true));
        assert_eq!(
            style(&[("LANG", "en_GB.UTF-8"), ("LC_ALL", "C")], true),
            (false, true)
        );
        assert_eq!(
            style(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8")], true),
            (true, true)
        );
        assert_eq!(style(&[("NO_COLOR", "1")], true), (false, false));
        assert_eq!(style(&[("NO_COLOR", "")], true), (false, true));
        assert_eq!(style(&[("TERM", "dumb")], true), (false, false));
    }

    #[test]
    fn paint_colours_the_bar_only() {
        let style = TerminalStyle {
            colour: true,
            ..ASCII
        };
        assert_eq!(
            style.paint("a ##%. b"),
            "a \u{1b}[36m##\u{1b}[33m%\u{1b}[0m. b"
        );
        assert_eq!(ASCII.paint("##"), "##");
        assert_eq!(style.tint(31, "no"), "\u{1b}[31mno\u{1b}[0m");
        assert_eq!(
            (style.tint(0, "no"), ASCII.tint(31, "no")),
            ("no".into(), "no".into())
        );
    }
}
