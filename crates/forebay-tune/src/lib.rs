//! Learns which scheduler parameters suit which access pattern.
