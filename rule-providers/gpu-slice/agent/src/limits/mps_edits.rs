//! Builds the changes that an MPS client needs in its container. The functions are pure.
//!
//! The pipe directory is mounted read-only, at the same path as on the host: connecting to a socket
//! needs no write access to the file system, and so a container cannot remove the socket that
//! others use. `/dev/shm` is not shared: drivers since Volta's MPS leave it empty (observed with
//! driver 580), and pods mount their own volumes there.

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
