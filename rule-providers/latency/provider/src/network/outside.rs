//! The addresses outside the cluster that rules name, and to which agents may connect. The module is
//! pure: callers pass the time, as a duration since one fixed moment, and resolve names.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use hashbrown::HashMap;
use ipnet::IpNet;

use super::demanded_pairs::Requester;

/// The time for which an address is measured after a rule last named it, ten minutes.
const POINT_RETENTION: Duration = Duration::from_secs(600);
/// The time after which a name is resolved again, one minute.
const NAME_RETENTION: Duration = Duration::from_secs(60);
/// The maximum number of addresses and names.
const MAX_POINTS: usize = 64;
/// The number of addresses and names from which only trusted namespaces may add some.
const MAX_TENANT_POINTS: usize = 48;
/// The maximum number of addresses and names of a namespace that is not trusted.
const MAX_NAMESPACE_POINTS: usize = 8;
/// The addresses at which clouds serve the credentials of machines, besides link-local ones: AWS and
/// Google Cloud by IPv6, Azure, Alibaba Cloud and Oracle Cloud.
const METADATA: [&str; 6] = [
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd20:ce::254",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
];

/// The addresses outside the cluster to which agents may connect; none by default.
#[derive(Clone, Debug, Default)]
pub struct AllowedAddresses {
    ranges: Vec<IpNet>,
    api_server: Option<IpAddr>,
}

impl AllowedAddresses {
    /// Creates the allowed ranges, without the address of the API server.
    pub fn new(ranges: Vec<IpNet>, api_server: Option<IpAddr>) -> Self {
        Self { ranges, api_server }
    }

    /// Returns whether agents may connect to an address that `is_inside` does not find inside the
    /// cluster.
    fn allow(&self, ip: IpAddr, is_inside: impl Fn(IpAddr) -> bool) -> bool {
        let ip = ip.to_canonical();
        let is_local = match ip {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        let is_special = is_local || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast();
        let is_metadata = METADATA.iter().any(|m| m.parse() == Ok(ip));
        let is_allowed = self.ranges.iter().any(|range| range.contains(&ip));
        let is_other = !is_special && !is_metadata && self.api_server != Some(ip);
        is_allowed && is_other && !is_inside(ip)
    }
}

/// The reason why an address has no figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoFigure {
    #[error("agents have no fresh figure yet")]
    NotYet,
    #[error("agents may connect to no address outside the cluster (--external-cidrs)")]
    Off,
    #[error("it is not within the ranges that agents may connect to (--external-cidrs)")]
    NotAllowed,
    #[error("the namespace names {MAX_NAMESPACE_POINTS} other addresses outside the cluster")]
    NamespaceFull,
    #[error("as many other addresses outside the cluster as possible are measured")]
    Full,
    #[error("the name is being resolved")]
    Resolving,
    #[error("the name resolves to no address that agents may connect to (--external-cidrs)")]
    Unresolved,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Address {
    Known(SocketAddr),
    Resolving,
    Unresolved,
}

#[derive(Debug)]
struct Point {
    address: Address,
    /// The time at which a name was last resolved; `None` for addresses.
    resolved: Option<Duration>,
    /// The namespaces whose rules name the address, each with the end of its interest.
    namespaces: Vec<(Arc<str>, Duration)>,
}

/// The addresses and names that rules name, as `HOST:PORT`.
#[derive(Debug, Default)]
pub(crate) struct OutsidePoints {
    allowed: AllowedAddresses,
    points: HashMap<Arc<str>, Point>,
}

/// Returns the host and the port of a place outside the cluster; names of nodes have no colon.
pub(crate) fn host_and_port(place: &str) -> Option<(&str, u16)> {
    let (host, port) = place.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((host, port.parse().ok().filter(|port| *port > 0)?))
}

impl OutsidePoints {
    pub fn new(allowed: AllowedAddresses) -> Self {
        Self {
            allowed,
            ..Self::default()
        }
    }

    /// Records that a rule names the place. Returns the address to measure, if it is new.
    pub fn want(
        &mut self,
        requester: Requester<'_>,
        place: &str,
        is_inside: impl Fn(IpAddr) -> bool,
        now: Duration,
    ) -> Result<Option<SocketAddr>, NoFigure> {
        let until = now + POINT_RETENTION;
        let same = |(namespace, _): &&mut (Arc<str>, Duration)| **namespace == *requester.namespace;
        if let Some(point) = self.points.get_mut(place)
            && let Some((_, end)) = point.namespaces.iter_mut().find(same)
        {
            *end = until;
            return point.address.known().map(|_| None);
        }
        if self.allowed.ranges.is_empty() {
            return Err(NoFigure::Off);
        }
        let named = |p: &&Point| {
            let mut namespaces = p.namespaces.iter();
            namespaces.any(|(n, _)| **n == *requester.namespace)
        };
        if !requester.trusted && self.points.values().filter(named).count() >= MAX_NAMESPACE_POINTS
        {
            return Err(NoFigure::NamespaceFull);
        }
        let most = match requester.trusted {
            true => MAX_POINTS,
            false => MAX_TENANT_POINTS,
        };
        if self.points.len() >= most && !self.points.contains_key(place) {
            return Err(NoFigure::Full);
        }
        let (host, port) = host_and_port(place).ok_or(NoFigure::NotAllowed)?;
        let address = match host.parse::<IpAddr>() {
            Ok(ip) if self.allowed.allow(ip, is_inside) => {
                Address::Known(SocketAddr::new(ip, port))
            }
            Ok(_) => return Err(NoFigure::NotAllowed),
            Err(_) => Address::Resolving,
        };
        let interest = (Arc::from(requester.namespace), until);
        if let Some(point) = self.points.get_mut(place) {
            point.namespaces.push(interest);
            return point.address.known().map(|_| None);
        }
        let point = Point {
            address,
            resolved: None,
            namespaces: vec![interest],
        };
        self.points.insert(place.into(), point);
        address.known().map(Some)
    }

    /// Removes and returns the places that no rule has named for ten minutes, and those that are found
    /// inside the cluster: after a start the agents' addresses are not known yet.
    pub fn expire(&mut self, is_inside: impl Fn(IpAddr) -> bool, now: Duration) -> Vec<Arc<str>> {
        let ended = |point: &mut Point| {
            point.namespaces.retain(|(_, until)| *until > now);
            let is_wrong = match point.address {
                Address::Known(address) => is_inside(address.ip().to_canonical()),
                Address::Resolving | Address::Unresolved => false,
            };
            is_wrong || point.namespaces.is_empty()
        };
        let gone = self.points.extract_if(|_, point| ended(point));
        gone.map(|(place, _)| place).collect()
    }

    /// Returns the names that are to be resolved now.
    pub fn due_names(&self, now: Duration) -> Vec<Arc<str>> {
        let is_name = |place: &str| {
            host_and_port(place).is_some_and(|(host, _)| host.parse::<IpAddr>().is_err())
        };
        let due = |point: &Point| point.resolved.is_none_or(|at| now >= at + NAME_RETENTION);
        let due = self
            .points
            .iter()
            .filter(|(place, p)| due(p) && is_name(place));
        due.map(|(place, _)| Arc::clone(place)).collect()
    }

    /// Records the addresses of a name. Returns the first allowed one, in their order as numbers, if
    /// the name no longer has its last one. A failure (`None`) keeps the last address.
    pub fn resolved(
        &mut self,
        name: &str,
        addresses: Option<Vec<SocketAddr>>,
        is_inside: impl Fn(IpAddr) -> bool,
        now: Duration,
    ) -> Option<SocketAddr> {
        let point = self.points.get_mut(name)?;
        point.resolved = Some(now);
        let allowed = |a: &SocketAddr| self.allowed.allow(a.ip(), &is_inside);
        let addresses: Vec<SocketAddr> = addresses?.into_iter().filter(allowed).collect();
        if addresses
            .iter()
            .any(|a| point.address == Address::Known(*a))
        {
            return None;
        }
        let first = addresses.into_iter().min();
        let address = first.map_or(Address::Unresolved, Address::Known);
        let before = std::mem::replace(&mut point.address, address);
        first.filter(|_| before != address)
    }

    /// Returns the places in order.
    pub fn places(&self) -> Vec<Arc<str>> {
        let mut places: Vec<Arc<str>> = self.points.keys().cloned().collect();
        places.sort_unstable();
        places
    }

    pub fn is_unresolved(&self, name: &str) -> bool {
        self.points
            .get(name)
            .is_some_and(|p| p.address == Address::Unresolved)
    }
}

impl Address {
    fn known(self) -> Result<SocketAddr, NoFigure> {
        match self {
            Self::Known(address) => Ok(address),
            Self::Resolving => Err(NoFigure::Resolving),
            Self::Unresolved => Err(NoFigure::Unresolved),
        }
    }
}

#[cfg(test)]
mod tests;
