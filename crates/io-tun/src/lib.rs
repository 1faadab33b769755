//! io-tun
