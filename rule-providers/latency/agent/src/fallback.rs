//! Stores TCP connects that started at the first UDP loss. A connect replaces the sample if further
//! UDP requests are lost.

use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::targets::Key;

type Connect = (Duration, Instant);

#[derive(Debug, Default)]
pub struct ConnectFallbacks {
    by_key: HashMap<Key, (Instant, Option<Connect>)>,
}

impl ConnectFallbacks {
    pub fn want(&mut self, key: &Key, now: Instant) {
        self.by_key.insert(key.clone(), (now, None));
    }

    pub fn offer(&mut self, key: &Key, connect: Connect) {
        if let Some((since, stored)) = self.by_key.get_mut(key)
            && connect.1 >= *since
        {
            *stored = Some(connect);
        }
    }

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
        let (mut fallbacks, start) = (ConnectFallbacks::default(), Instant::now());
        let key = Key {
            node: "n".into(),
            instance: "i".into(),
        };
        let ms = Duration::from_millis;
        fallbacks.offer(&key, (ms(1), start));
        assert_eq!(fallbacks.take(&key), None, "nothing was lost");
        fallbacks.want(&key, start + ms(10));
        fallbacks.offer(&key, (ms(1), start + ms(9)));
        assert_eq!(fallbacks.take(&key), None, "from before the loss");
        let good = (ms(1), start + ms(10));
        fallbacks.offer(&key, good);
        assert_eq!(fallbacks.take(&key), Some(good));
        assert_eq!(fallbacks.take(&key), None, "used");
        fallbacks.offer(&key, good);
        fallbacks.want(&key, start + ms(20));
        assert_eq!(fallbacks.take(&key), None, "of another row");
        fallbacks.retain(|_| false);
        assert!(fallbacks.by_key.is_empty());
    }
}
