use std::path::Path;

use proptest::prelude::*;
use tautline_gpu_placement::node_inventory::InventoryCard;

use super::*;

const GIB: u64 = 1 << 30;
fn card(index: u32, gib: u64) -> InventoryCard {
    InventoryCard {
        uuid: format!("GPU-{index}"),
        index,
        memory_bytes: gib * GIB,
        ..InventoryCard::default()
    }
}

fn settings(hami_core: Option<&str>) -> Settings {
    Settings {
        run_dir: RUN_DIR.into(),
        hami_core: hami_core.map(PathBuf::from),
    }
}

fn with_library() -> Settings {
    settings(Some("/opt/hami/libvgpu.so"))
}

fn mps(cards: &[Part]) -> Result<Edits, LimitError> {
    mps::edits(Path::new(RUN_DIR), cards)
}

fn text(edits: &Edits) -> String {
    let env = edits.env.iter().map(|(k, v)| format!("{k}={v}\n"));
    let mounts = edits.mounts.iter().map(|m| {
        let options = m.options.join(",");
        format!("{} -> {} ({options})\n", m.host_path, m.container_path)
    });
    env.chain(mounts).collect()
}

#[test]
fn mode_parses_its_own_text() {
    for mode in Mode::ALL {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    let error = "MPS".parse::<Mode>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "limits \"MPS\" are unknown; write none, timeslice, mps, hami-core or mig"
    );
}

#[test]
fn whole_cards_have_no_limit() {
    for mode in Mode::ALL {
        let cards = [(card(0, 80), 1000), (card(1, 80), 1000)];
        assert_eq!(edits(mode, &with_library(), &cards), Ok(Edits::default()));
        assert_eq!(edits(mode, &with_library(), &[]), Ok(Edits::default()));
    }
}

#[test]
fn mps_limits_memory_and_processors_of_a_share() {
    let edits = mps(&[(card(3, 80), 250)]).unwrap();
    insta::assert_snapshot!(text(&edits), @r"
    CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25
    CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20480M
    CUDA_MPS_PIPE_DIRECTORY=/run/tautline/mps/GPU-3/pipe
    /run/tautline/mps/GPU-3/pipe -> /run/tautline/mps/GPU-3/pipe (bind,ro,nosuid,nodev,noexec)
    ");
}

#[test]
fn mps_refuses_parts_of_several_cards() {
    let cards = [(card(0, 80), 1000), (card(1, 80), 500)];
    let error = mps(&cards).unwrap_err();
    insta::assert_snapshot!(error, @"limits mps hold on one card per container, but this one has GPU-0:1000,GPU-1:500; request a part of one card or whole cards (multiples of 1000 tautline.io/gpu-milli), or set the node's limits to hami-core");
}

#[test]
fn hami_core_limits_each_share_by_ordinal() {
    let cards = [(card(5, 80), 500), (card(2, 80), 1000)];
    let edits = edits(Mode::HamiCore, &with_library(), &cards).unwrap();
    insta::assert_snapshot!(text(&edits), @r"
    CUDA_DEVICE_MEMORY_LIMIT_1=40960m
    CUDA_DEVICE_ORDER=PCI_BUS_ID
    CUDA_DEVICE_SM_LIMIT_1=50
    GPU_CORE_UTILIZATION_POLICY=force
    /opt/hami/libvgpu.so -> /usr/local/vgpu/libvgpu.so (bind,ro,nosuid,nodev)
    /run/tautline/hami-core/ld.so.preload -> /etc/ld.so.preload (bind,ro,nosuid,nodev,noexec)
    /run/tautline/hami-core/lock -> /tmp/vgpulock (bind,rw,nosuid,nodev,noexec)
    ");
}

/// As NVML tells nothing of memory that is the node's own.
#[test]
fn memory_that_is_not_known_limits_nothing() {
    let cards = [(card(0, 0), 250)];
    let hami_core = edits(Mode::HamiCore, &with_library(), &cards);
    for edits in [mps(&cards).unwrap(), hami_core.unwrap()] {
        let names: Vec<&str> = edits.env.keys().map(String::as_str).collect();
        assert!(!names.iter().any(|n| n.contains("MEM")), "{names:?}");
        assert!(edits.env.values().any(|v| v == "25"), "{edits:?}");
    }
}

#[test]
fn hami_core_needs_its_library() {
    let error = edits(Mode::HamiCore, &settings(None), &[(card(0, 80), 1)]).unwrap_err();
    assert_eq!(error, LimitError::NoLibrary);
}

#[test]
fn hami_core_prepares_its_files() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        run_dir: directory.path().into(),
        ..with_library()
    };
    for _ in 0..2 {
        hami_core::prepare(&settings).unwrap();
    }
    let edits = edits(Mode::HamiCore, &settings, &[(card(0, 80), 1)]).unwrap();
    let [_, preload, lock] = &edits.mounts[..] else {
        panic!("{edits:?}");
    };
    let written = std::fs::read_to_string(&preload.host_path).unwrap();
    assert_eq!(written, "/usr/local/vgpu/libvgpu.so\n");
    let mode = std::fs::metadata(&lock.host_path).unwrap().permissions();
    assert_eq!(mode.mode() & 0o7777, 0o1777);
}

proptest! {
    /// What all containers of a card get together is never more than the card.
    #[test]
    fn shares_of_a_card_fit(
        bytes in 1u64 << 30..1 << 50,
        shares in prop::collection::vec(10u16..1000, 1..20),
    ) {
        let mut left = 1000;
        let mut shares = shares;
        shares.retain(|milli| {
            let fits = *milli <= left;
            if fits {
                left -= milli;
            }
            fits
        });
        let memory: u64 = shares.iter().filter_map(|m| memory_mib(bytes, *m)).sum();
        prop_assert!(memory <= bytes >> 20);
        let percents: u16 = shares.iter().map(|m| percent(*m)).sum();
        prop_assert!(percents <= 100);
    }

    #[test]
    fn share_is_never_without_limit(bytes in 1u64.., milli in 1u16..1000) {
        prop_assert!(memory_mib(bytes, milli).is_some_and(|mib| mib >= 1));
        prop_assert!((1..=99).contains(&percent(milli)));
    }
}
