"""What figures and names mean to people: columns, units, names of kernels, words for parts of time and causes."""
