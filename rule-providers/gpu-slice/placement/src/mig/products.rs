use super::Geometry;

/// The models with MIG, and their memory sizes in GB; the first size is the default.
const MODELS: [(&str, &[u16]); 10] = [
    ("A30", &[24]),
    ("A100", &[40, 80]),
    ("A800", &[40, 80]),
    ("H100", &[80, 94, 96]),
    ("H800", &[80]),
    ("GH200", &[96]),
    ("H20", &[96]),
    ("H200", &[141]),
    ("B200", &[180]),
    ("GB200", &[186]),
];

impl Geometry {
    /// The geometry of a product, named as by NVIDIA's GPU feature discovery
    /// (`NVIDIA-A100-SXM4-40GB`, also with a suffix `-MIG-1g.5gb` or `-SHARED`) or by a DRA
    /// driver's attribute `productName`. `memory_mib`, the label `nvidia.com/gpu.memory` of a whole
    /// card, decides between memory sizes; the geometry of an unknown size is not known.
    pub fn of_product(product: &str, memory_mib: Option<u64>) -> Option<&'static Geometry> {
        let product = product.split("-MIG-").next().unwrap_or(product);
        let words = || product.split(|c: char| !c.is_ascii_alphanumeric());
        let (model, sizes) = MODELS
            .iter()
            .find(|(model, _)| words().any(|w| w.eq_ignore_ascii_case(model)))?;
        let named = words()
            .filter_map(|w| w.strip_suffix("GB")?.parse().ok())
            .find(|gb| sizes.contains(gb));
        let gb = match (named, memory_mib) {
            (Some(gb), _) => gb,
            (None, Some(mib)) => nearest(mib, sizes)?,
            // The name of the 94 GB card contains NVL.
            (None, None) if *model == "H100" && words().any(|w| w == "NVL") => 94,
            (None, None) => *sizes.first()?,
        };
        of_size(gb)
    }

    /// The geometry of a card by its memory alone. Only for cards that are known to be in MIG mode:
    /// other cards with the same memory may have no geometry.
    pub fn of_memory(memory_mib: u64) -> Option<&'static Geometry> {
        let sizes: Vec<u16> = Geometry::all().iter().map(|g| g.memory_gb).collect();
        of_size(nearest(memory_mib, &sizes)?)
    }
}

fn of_size(gb: u16) -> Option<&'static Geometry> {
    Geometry::all().iter().find(|g| g.memory_gb == gb)
}

/// Returns the size in GB that is nearest to `mib`; `None`: it differs by more than 3 %. Drivers
/// show up to 3 % less memory than the product's name.
fn nearest(mib: u64, sizes: &[u16]) -> Option<u16> {
    let off = |gb: &u16| (u64::from(*gb) * 1024).abs_diff(mib);
    let gb = sizes.iter().min_by_key(|gb| off(gb))?;
    (off(gb) <= u64::from(*gb) * 1024 * 3 / 100).then_some(*gb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_as_they_are_labelled() {
        for (product, memory, want) in [
            ("NVIDIA-A30", None, Some(24)),
            ("NVIDIA-A100-SXM4-40GB", None, Some(40)),
            ("NVIDIA-A100-PCIE-40GB-MIG-3g.20gb", None, Some(40)),
            ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", Some(9728), Some(80)),
            ("NVIDIA A100 80GB PCIe", None, Some(80)),
            ("A100", Some(81920), Some(80)),
            ("NVIDIA-H100-80GB-HBM3", Some(81559), Some(80)),
            ("NVIDIA-H100-PCIe", None, Some(80)),
            ("NVIDIA-H100-NVL", None, Some(94)),
            ("NVIDIA-H100-NVL", Some(95830), Some(94)),
            ("NVIDIA-GH200-480GB", Some(97871), Some(96)),
            ("NVIDIA-H20", None, Some(96)),
            ("NVIDIA-H200", Some(143_771), Some(141)),
            ("NVIDIA-B200", Some(183_359), Some(180)),
            ("NVIDIA-GB200", Some(189_471), Some(186)),
            ("NVIDIA-L40S", None, None),
            ("NVIDIA-A10", Some(24_576), None),
            ("NVIDIA-H200", Some(81_559), None),
            ("", None, None),
        ] {
            let got = Geometry::of_product(product, memory).map(|g| g.memory_gb);
            assert_eq!(got, want, "{product} {memory:?}");
        }
    }

    #[test]
    fn by_memory_alone() {
        let of = |mib| Geometry::of_memory(mib).map(|g| g.memory_gb);
        assert_eq!(of(40_960), Some(40));
        assert_eq!(of(40_536), Some(40));
        assert_eq!(of(95_830), Some(94));
        assert_eq!(of(97_871), Some(96));
        assert_eq!(of(49_152), None);
        assert_eq!(of(u64::MAX / 2), None);
    }
}
