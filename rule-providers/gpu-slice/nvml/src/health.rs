/// The XIDs that an application causes on a sound card: graphics exception, page fault, stopped
/// channel, preemptive clean-up, video processor exception, context switch timeout.
const APPLICATION_XIDS: [u64; 6] = [13, 31, 43, 45, 68, 109];

/// The signs of a card's health that NVML has reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// True if NVML cannot read the card now.
    pub gone: bool,
    /// True if NVML requires a reset of the card.
    pub reset_required: bool,
    /// The first XID that an application does not cause; it stays until the reader is restarted.
    pub xid: Option<u64>,
    /// True if memory errors that ECC could not correct have occurred since the driver was loaded.
    pub uncorrectable: bool,
    /// True if pages wait for a reboot to be retired.
    pub pages_pending: bool,
    /// True if remapping a row of memory failed.
    pub remap_failed: bool,
    /// True if the card is as hot as the temperature at which it shuts down.
    pub overheated: bool,
}

impl Health {
    /// Records an XID, and returns whether it is the first that is a fault of the card.
    pub fn xid(&mut self, xid: u64) -> bool {
        let news = self.xid.is_none() && !APPLICATION_XIDS.contains(&xid);
        if news {
            self.xid = Some(xid);
        }
        news
    }

    /// Returns the gravest fault.
    pub fn fault(&self) -> Option<String> {
        let xid = self.xid.map(|xid| format!("Xid{xid}"));
        let signs = [
            (self.uncorrectable, "EccUncorrectable"),
            (self.remap_failed, "RowRemapFailed"),
            (self.pages_pending, "PagesPending"),
            (self.reset_required, "ResetRequired"),
            (self.overheated, "Overheated"),
        ];
        let sign = signs.iter().find(|(holds, _)| *holds);
        let gone = self.gone.then(|| "Gone".to_owned());
        gone.or(xid).or(sign.map(|(_, name)| (*name).to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn application_xids_are_no_fault() {
        let mut health = Health::default();
        for xid in APPLICATION_XIDS {
            assert!(!health.xid(xid));
        }
        assert_eq!(health.fault(), None);
    }

    #[test]
    fn the_first_critical_xid_stays() {
        let mut health = Health::default();
        assert!(health.xid(79));
        assert!(!health.xid(48));
        assert!(!health.xid(79));
        assert_eq!(health.fault().as_deref(), Some("Xid79"));
    }

    #[test]
    fn the_gravest_fault_is_named() {
        let mut health = Health {
            overheated: true,
            pages_pending: true,
            ..Health::default()
        };
        assert_eq!(health.fault().as_deref(), Some("PagesPending"));
        health.uncorrectable = true;
        assert_eq!(health.fault().as_deref(), Some("EccUncorrectable"));
        health.xid(79);
        assert_eq!(health.fault().as_deref(), Some("Xid79"));
        health.gone = true;
        assert_eq!(health.fault().as_deref(), Some("Gone"));
    }
}
