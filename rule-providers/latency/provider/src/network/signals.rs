use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Signals {
    pub fit: FitTrigger,
    pub assign: Notify,
}

impl Signals {
    pub fn agents_changed(&self) {
        self.fit.notify();
        self.assign.notify_one();
    }
}

#[derive(Debug, Default)]
pub(crate) struct FitTrigger {
    pending: Mutex<bool>,
    changed: Condvar,
}

impl FitTrigger {
    pub fn notify(&self) {
        *self.pending.lock() = true;
        self.changed.notify_one();
    }

    pub fn wait(&self, most: Duration) {
        let mut pending = self.pending.lock();
        if !*pending {
            _ = self.changed.wait_for(&mut pending, most);
        }
        *pending = false;
    }
}
