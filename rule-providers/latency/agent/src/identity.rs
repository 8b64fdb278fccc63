//! Reads the boot ID and the network speed of the agent's node.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Returns the boot ID of the kernel, which is a new UUID at each boot.
pub fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    let id = std::fs::read_to_string(path).with_context(|| path)?;
    Ok(id.trim().to_owned())
}

/// Returns the speed of the slowest interface with a default route, in bits per second, or 0 if no
/// speed is known. `root` is the machine's "/".
pub fn nic_bits_per_second(root: &Path) -> u64 {
    let interfaces = default_interfaces(root);
    let speeds = interfaces.iter().filter_map(|name| {
        let interface: PathBuf = root.join("sys/class/net").join(name);
        // Virtual interfaces report an invented speed: a veth has 10 Gbit/s.
        if !interface.join("device").exists() {
            return None;
        }
        // The file has megabits per second; it has -1, or cannot be read, while the link is down.
        let megabits: i64 = std::fs::read_to_string(interface.join("speed"))
            .ok()?
            .trim()
            .parse()
            .ok()?;
        u64::try_from(megabits).ok().filter(|m| *m > 0)
    });
    speeds
        .min()
        .map_or(0, |megabits| megabits.saturating_mul(1_000_000))
}

fn default_interfaces(root: &Path) -> Vec<String> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    // The columns are Iface Destination Gateway Flags RefCnt Use Metric Mask ...
    let v4_routes = read("proc/net/route");
    let v4 = v4_routes.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let default = fields.get(1) == Some(&"00000000") && fields.get(7) == Some(&"00000000");
        default.then(|| fields[0].to_owned())
    });
    // The columns are destination, its length, source, its length, next hop, metric, counts, flags
    // and interface.
    let v6_routes = read("proc/net/ipv6_route");
    let v6 = v6_routes.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let default = fields.get(1) == Some(&"00") && fields.first()?.bytes().all(|b| b == b'0');
        let name = fields.last().filter(|name| default && **name != "lo")?;
        Some((*name).to_owned())
    });
    let mut all: Vec<String> = v4.chain(v6).collect();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_interface_that_leads_out_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(nic_bits_per_second(root.path()), 0);
        write(
            "proc/net/route",
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n\
             eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\n\
             eth9\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\n",
        );
        let any = "0".repeat(32);
        write(
            "proc/net/ipv6_route",
            &format!(
                "{any} 00 {any} 00 {any} 00000400 00000001 00000000 00000003 eth1\n\
                 {any} 00 {any} 00 {any} ffffffff 00000001 00000000 00200200 lo\n"
            ),
        );
        write("sys/class/net/eth0/speed", "25000\n");
        assert_eq!(nic_bits_per_second(root.path()), 0, "a veth");
        for interface in ["eth0", "eth1", "eth9"] {
            write(&format!("sys/class/net/{interface}/device/vendor"), "1\n");
        }
        write("sys/class/net/eth1/speed", "-1\n");
        write("sys/class/net/eth9/speed", "10\n");
        assert_eq!(nic_bits_per_second(root.path()), 25_000_000_000);
        write("sys/class/net/eth1/speed", "1000\n");
        assert_eq!(nic_bits_per_second(root.path()), 1_000_000_000);
    }

    #[test]
    fn this_machine_has_a_boot() {
        assert_eq!(boot_id().unwrap().len(), 36);
    }
}
