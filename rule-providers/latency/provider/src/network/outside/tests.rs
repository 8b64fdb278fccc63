use super::*;

const TENANT: Requester<'_> = Requester {
    namespace: "tenant",
    trusted: false,
};

fn points() -> OutsidePoints {
    let ranges = [
        "203.0.113.0/24",
        "2001:db8::/32",
        "169.254.0.0/16",
        "127.0.0.0/8",
    ];
    let ranges = ranges.map(|range| range.parse().unwrap());
    let api_server = "203.0.113.1".parse().ok();
    OutsidePoints::new(AllowedAddresses::new(ranges.to_vec(), api_server))
}

fn want(points: &mut OutsidePoints, place: &str) -> Result<Option<SocketAddr>, NoFigure> {
    let inside: IpAddr = "203.0.113.2".parse().unwrap();
    points.want(TENANT, place, |ip| ip == inside, Duration::ZERO)
}

#[test]
fn only_allowed_addresses_are_measured() {
    let mut points = points();
    for place in [
        "203.0.113.9:5432",
        "[2001:db8::7]:443",
        "[::ffff:203.0.113.8]:1",
    ] {
        assert!(matches!(want(&mut points, place), Ok(Some(_))), "{place}");
        assert_eq!(want(&mut points, place), Ok(None), "{place} again");
    }
    for place in [
        "198.51.100.7:5432",
        "169.254.169.254:80",
        "127.0.0.1:5432",
        "203.0.113.1:6443",
        "203.0.113.2:5310",
        "203.0.113.9:0",
        "203.0.113.9:65536",
        "node-without-a-port",
    ] {
        assert_eq!(
            want(&mut points, place),
            Err(NoFigure::NotAllowed),
            "{place}"
        );
    }
    let mut off = OutsidePoints::default();
    assert_eq!(want(&mut off, "203.0.113.9:5432"), Err(NoFigure::Off));
}

#[test]
fn metadata_services_are_never_allowed() {
    let everything = ["0.0.0.0/0", "::/0"].map(|range| range.parse().unwrap());
    let allowed = AllowedAddresses::new(everything.to_vec(), None);
    for ip in METADATA
        .into_iter()
        .chain(["169.254.169.254", "fe80::1", "::1", "224.0.0.1"])
    {
        assert!(!allowed.allow(ip.parse().unwrap(), |_| false), "{ip}");
    }
    assert!(allowed.allow("203.0.113.9".parse().unwrap(), |_| false));
}

#[test]
fn namespaces_and_the_whole_have_bounds() {
    let mut points = points();
    for n in 0..MAX_NAMESPACE_POINTS {
        assert!(want(&mut points, &format!("203.0.113.9:{}", n + 1)).is_ok());
    }
    assert_eq!(
        want(&mut points, "203.0.113.9:99"),
        Err(NoFigure::NamespaceFull)
    );
    let mut add = |requester, n: usize| {
        let place = format!("203.0.113.10:{}", n + 1);
        points.want(requester, &place, |_| false, Duration::ZERO)
    };
    for n in MAX_NAMESPACE_POINTS..MAX_TENANT_POINTS {
        assert!(add(Requester::TRUSTED, n).is_ok());
    }
    let other = Requester {
        namespace: "other",
        ..TENANT
    };
    assert_eq!(add(other, MAX_POINTS), Err(NoFigure::Full));
    assert_eq!(add(other, MAX_NAMESPACE_POINTS), Ok(None), "it is measured");
    for n in MAX_TENANT_POINTS..MAX_POINTS {
        assert!(add(Requester::TRUSTED, n).is_ok());
    }
    assert_eq!(add(Requester::TRUSTED, MAX_POINTS), Err(NoFigure::Full));
}

#[test]
fn place_is_measured_until_no_namespace_names_it() {
    let mut points = points();
    assert!(want(&mut points, "203.0.113.9:5432").is_ok());
    let later = POINT_RETENTION / 2;
    let again = points.want(Requester::TRUSTED, "203.0.113.9:5432", |_| false, later);
    assert_eq!(again, Ok(None));
    assert!(points.expire(|_| false, POINT_RETENTION).is_empty());
    let gone = points.expire(|_| false, POINT_RETENTION + later);
    assert_eq!(gone, ["203.0.113.9:5432".into()]);
    assert!(points.places().is_empty());

    // An agent answers there, as is found out later.
    assert!(want(&mut points, "203.0.113.9:5310").is_ok());
    let gone = points.expire(|_| true, Duration::ZERO);
    assert_eq!(gone, ["203.0.113.9:5310".into()]);
}

#[test]
fn name_has_its_first_allowed_address() {
    let (mut points, name) = (points(), "db.example.com:5432");
    assert_eq!(want(&mut points, name), Err(NoFigure::Resolving));
    assert_eq!(points.due_names(Duration::ZERO), [name.into()]);
    let address = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 5432);
    let mut resolved = |ips: Option<&[&str]>| {
        let addresses = ips.map(|ips| ips.iter().map(|ip| address(ip)).collect());
        let found = points.resolved(name, addresses, |_| false, Duration::ZERO);
        (found, want(&mut points, name))
    };
    assert_eq!(resolved(None), (None, Err(NoFigure::Resolving)));
    let two: &[&str] = &["10.0.0.1", "203.0.113.9", "203.0.113.8"];
    assert_eq!(
        resolved(Some(two)),
        (Some(address("203.0.113.8")), Ok(None))
    );
    assert_eq!(resolved(Some(two)), (None, Ok(None)), "the same address");
    let more: &[&str] = &["203.0.113.7", "203.0.113.8"];
    assert_eq!(resolved(Some(more)), (None, Ok(None)), "one more address");
    assert_eq!(resolved(None), (None, Ok(None)), "a failure keeps it");
    let inside: &[&str] = &["10.0.0.1"];
    assert_eq!(resolved(Some(inside)), (None, Err(NoFigure::Unresolved)));
    assert!(points.is_unresolved(name));
    assert_eq!(points.due_names(NAME_RETENTION / 2), []);
    assert_eq!(points.due_names(NAME_RETENTION), [name.into()]);
}
