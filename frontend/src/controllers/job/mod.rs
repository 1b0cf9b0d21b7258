//! Jobs.
pub(crate) mod children;
pub(crate) mod chunks;
pub(crate) mod compilation;
pub(crate) mod decide;
pub(crate) mod generation;
pub(crate) mod observed;
pub(crate) mod port_labels;
pub(crate) mod present;
pub(crate) mod resources;
pub(crate) mod transition;
pub(crate) mod wanted;
