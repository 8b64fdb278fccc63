use crate::scene::{Card, Scene};

/// PCI addresses as NVML writes them.
pub fn pci(card: &Card, index: usize) -> String {
    card.pci
        .clone()
        .unwrap_or_else(|| format!("00000000:{:02X}:00.0", index + 1))
}

/// Domain, bus and device of a PCI address.
pub fn pci_numbers(address: &str) -> (u32, u32, u32) {
    let mut numbers = address
        .split([':', '.'])
        .map(|number| u32::from_str_radix(number, 16).unwrap_or_default());
    let mut next = || numbers.next().unwrap_or_default();
    (next(), next(), next())
}

/// The other end of a card's link: its state, and the card's index or `None` for a switch.
pub fn link(scene: &Scene, card: &Card, link: u32) -> Option<(bool, Option<usize>)> {
    let mut first = 0;
    for links in &card.links {
        if link < first + links.count {
            let to = scene.cards.iter().position(|other| other.uuid == links.to);
            return Some((!links.down, to));
        }
        first += links.count;
    }
    None
}
