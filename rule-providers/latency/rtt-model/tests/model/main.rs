//! The model from outside, on worlds whose truth is known.

mod changes;
mod chooses;
mod keeps;
mod predicts;
mod world;
