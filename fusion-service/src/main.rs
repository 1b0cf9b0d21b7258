//! The program `fusion-service`.

fn main() {}
