//! Field offsets and masks of the headers, one file each.
