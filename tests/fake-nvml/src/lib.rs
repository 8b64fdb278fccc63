//! Builds a `libnvidia-ml.so.1` for tests, which plays the cards of the JSON file that
//! `$FAKE_NVML_FILE` names. The file is read again when it changes, so a test changes the cards of
//! a running program.
//!
//! Without that file, NVML says that no driver is loaded. Replace the file by a rename, so that no
//! half of it is read. [`scene`] has its fields; `cards.json` has eight H100 on an NVSwitch.
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
