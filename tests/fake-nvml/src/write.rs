use std::ffi::c_char;

use nvml_wrapper_sys::bindings::{
    nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE, nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_SUCCESS, nvmlReturn_t,
};

/// The call's value was written.
pub const SUCCESS: nvmlReturn_t = nvmlReturn_enum_NVML_SUCCESS;

/// Writes the value of a call, or returns its error.
///
/// # Safety
/// `out` is null or valid for a write.
pub unsafe fn value<T>(out: *mut T, result: Result<T, nvmlReturn_t>) -> nvmlReturn_t {
    match result {
        Ok(_) if out.is_null() => nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
        Ok(value) => {
            // SAFETY: the caller's.
            unsafe { out.write(value) };
            SUCCESS
        }
        Err(error) => error,
    }
}

/// Writes a string with its end.
///
/// # Safety
/// `out` is valid for `length` bytes.
pub unsafe fn text(
    out: *mut c_char,
    length: u32,
    result: Result<String, nvmlReturn_t>,
) -> nvmlReturn_t {
    let text = match result {
        Ok(text) => text,
        Err(error) => return error,
    };
    if out.is_null() || text.len() >= length as usize {
        return nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE;
    }
    // SAFETY: the text and its end fit into the caller's `length` bytes.
    unsafe {
        out.cast::<u8>()
            .copy_from_nonoverlapping(text.as_ptr(), text.len());
        out.add(text.len()).write(0);
    }
    SUCCESS
}

/// Writes a list: `count` is its room, and then its length.
///
/// # Safety
/// `count` is valid, and `out` is null or valid for `count` values.
pub unsafe fn list<T>(
    out: *mut T,
    count: *mut u32,
    result: Result<Vec<T>, nvmlReturn_t>,
) -> nvmlReturn_t {
    let list = match result {
        Ok(list) => list,
        Err(error) => return error,
    };
    // SAFETY: the caller's.
    let room = unsafe { count.replace(u32::try_from(list.len()).unwrap_or(u32::MAX)) };
    if list.is_empty() {
        return SUCCESS;
    }
    if out.is_null() || (room as usize) < list.len() {
        return nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE;
    }
    for (index, value) in list.into_iter().enumerate() {
        // SAFETY: the list fits into the caller's room.
        unsafe { out.add(index).write(value) };
    }
    SUCCESS
}

/// A string in an array of C.
pub fn array<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(text.bytes().take(N - 1)) {
        *to = from.cast_signed() as c_char;
    }
    array
}
