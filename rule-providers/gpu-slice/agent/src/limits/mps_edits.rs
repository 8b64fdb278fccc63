//! What an MPS client needs in its container. Pure.
//!
//! The pipe directory is mounted at its path of the host, read-only: connecting to a socket needs no
//! write access to the file system, and a container can then not remove the socket of others.
//! `/dev/shm` is not shared: drivers since Volta's MPS leave it empty (seen with 580), and pods
//! mount volumes of their own there.

use tautline_gpu_placement::node_inventory::InventoryCard;

use super::{LimitEdits, LimitError, Settings, bind, memory_mib, mps, percent};

pub(super) fn edits(
    settings: &Settings,
    cards: &[(InventoryCard, u16)],
) -> Result<LimitEdits, LimitError> {
    let [(card, milli)] = cards else {
        let all = cards.iter().map(|(c, milli)| format!("{}:{milli}", c.uuid));
        return Err(LimitError::SeveralCards(all.collect::<Vec<_>>().join(",")));
    };
    let pipe = mps::pipe_dir(&settings.run_dir, &card.uuid);
    let path = pipe.to_string_lossy().into_owned();
    let memory = memory_mib(card.memory_bytes, *milli);
    let memory = memory.map(|mib| ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", format!("0={mib}M")));
    let env = [
        ("CUDA_MPS_PIPE_DIRECTORY", path.clone()),
        (
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
            percent(*milli).to_string(),
        ),
    ];
    let env = env.into_iter().chain(memory);
    Ok(LimitEdits {
        env: env.map(|(k, v)| (k.to_owned(), v)).collect(),
        mounts: vec![bind(pipe, &path, false)],
    })
}
