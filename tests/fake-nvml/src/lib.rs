//! A `libnvidia-ml.so.1` for tests: it plays the cards of the JSON file that `$FAKE_NVML_FILE`
//! names. Without that file, NVML says that no driver is loaded. The file is read again when it
//! changes; replace it by a rename, so that no half of it is read. [`scene`] has its fields;
//! `cards.json` has eight H100 on an NVSwitch.
//!
//! Link the library as `libnvidia-ml.so.1`, or name it by `tautline-nvml --library`.

mod card;
mod device;
mod event;
mod instances;
mod mig;
mod mig_profiles;
mod play;
mod process;
mod scene;
mod system;
mod write;
