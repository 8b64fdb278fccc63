//! Judges a daemon and its servers by the results of checks. The functions are pure.

use super::control::Server;

/// The number of checks in a row without an answer after which a daemon counts as hanging.
const MAX_FAILED_CHECKS: u32 = 3;

/// The state of a daemon since its start.
#[derive(Debug, Default)]
pub(super) struct Health {
    answered: bool,
    failures: u32,
    servers: Vec<Server>,
}

/// The result of a check.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Check {
    /// True if the daemon answered for the first time.
    pub first: bool,
    /// True if the daemon hangs.
    pub hangs: bool,
    /// The servers that have ended since the last check, at which they had clients.
    pub lost: Vec<Server>,
}

impl Health {
    /// Records the servers that a check found; `None` means that the daemon did not answer.
    pub fn update(&mut self, servers: Option<Vec<Server>>) -> Check {
        let Some(servers) = servers else {
            self.failures += 1;
            return Check {
                hangs: self.failures >= MAX_FAILED_CHECKS,
                ..Check::default()
            };
        };
        let first = !self.answered;
        (self.answered, self.failures) = (true, 0);
        let before = std::mem::replace(&mut self.servers, servers);
        let runs = |server: &Server| self.servers.iter().any(|s| s.pid == server.pid);
        let lost = before
            .into_iter()
            .filter(|s| !s.clients.is_empty() && !runs(s));
        Check {
            first,
            hangs: false,
            lost: lost.collect(),
        }
    }

    /// Returns whether the daemon has answered, and the last check did not fail.
    pub fn is_up(&self) -> bool {
        self.answered && self.failures == 0
    }

    pub fn answered(&self) -> bool {
        self.answered
    }

    pub fn clients(&self) -> usize {
        self.servers.iter().map(|s| s.clients.len()).sum()
    }

    /// Returns the servers with clients, which ended together with the daemon.
    pub fn end(self) -> Vec<Server> {
        let mut servers = self.servers;
        servers.retain(|s| !s.clients.is_empty());
        servers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(pid: u32, clients: &[u32]) -> Server {
        let clients = clients.to_vec();
        Server { pid, clients }
    }

    #[test]
    fn first_answer_is_told_once() {
        let mut health = Health::default();
        assert!(!health.update(None).first);
        assert!(!health.is_up());
        assert!(health.update(Some(vec![])).first);
        assert!(!health.update(Some(vec![])).first);
        assert!(health.is_up());
    }

    #[test]
    fn daemon_hangs_after_three_failures_in_a_row() {
        let mut health = Health::default();
        assert!(!health.update(None).hangs);
        assert!(!health.update(None).hangs);
        health.update(Some(vec![]));
        assert!(!health.update(None).hangs);
        assert!(!health.is_up());
        assert!(!health.update(None).hangs);
        assert!(health.update(None).hangs);
    }

    #[test]
    fn servers_with_clients_are_lost_when_they_end() {
        let mut health = Health::default();
        health.update(Some(vec![server(1, &[10, 11]), server(2, &[])]));
        assert_eq!(health.clients(), 2);
        assert_eq!(health.update(None).lost, []);
        let check = health.update(Some(vec![server(3, &[12])]));
        assert_eq!(check.lost, [server(1, &[10, 11])]);
        assert_eq!(health.end(), [server(3, &[12])]);
    }
}
