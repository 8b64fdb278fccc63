//! TCP connects that started at the first UDP loss. One replaces a sample if UDP stays lost.

use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::targets::Key;

/// A connect that worked: its time, and when it was begun.
type Connect = (Duration, Instant);

#[derive(Debug, Default)]
pub struct ConnectFallbacks {
    /// When the first loss of a row was noted, and a connect begun since.
    by_key: HashMap<Key, (Instant, Option<Connect>)>,
}

impl ConnectFallbacks {
    /// Records the first loss of a row; drops the last connect.
    pub fn want(&mut self, key: &Key, now: Instant) {
        self.by_key.insert(key.clone(), (now, None));
    }

    /// Stores a connect, if it started after the first loss.
    pub fn offer(&mut self, key: &Key, connect: Connect) {
        if let Some((since, kept)) = self.by_key.get_mut(key)
            && connect.1 >= *since
        {
            *kept = Some(connect);
        }
    }

    /// The connect of the row, which is used once.
    pub fn take(&mut self, key: &Key) -> Option<Connect> {
        self.by_key.get_mut(key)?.1.take()
    }

    pub fn forget(&mut self, key: &Key) {
        self.by_key.remove(key);
    }

    pub fn retain(&mut self, keep: impl Fn(&Key) -> bool) {
        self.by_key.retain(|key, _| keep(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_since_the_first_loss_is_used_once() {
        let (mut kept, start) = (ConnectFallbacks::default(), Instant::now());
        let key = Key {
            node: "n".into(),
            instance: "i".into(),
        };
        let ms = Duration::from_millis;
        kept.offer(&key, (ms(1), start));
        assert_eq!(kept.take(&key), None, "nothing was lost");
        kept.want(&key, start + ms(10));
        kept.offer(&key, (ms(1), start + ms(9)));
        assert_eq!(kept.take(&key), None, "from before the loss");
        let good = (ms(1), start + ms(10));
        kept.offer(&key, good);
        assert_eq!(kept.take(&key), Some(good));
        assert_eq!(kept.take(&key), None, "used");
        kept.offer(&key, good);
        kept.want(&key, start + ms(20));
        assert_eq!(kept.take(&key), None, "of another row");
        kept.retain(|_| false);
        assert!(kept.by_key.is_empty());
    }
}
