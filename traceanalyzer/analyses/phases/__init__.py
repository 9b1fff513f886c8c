"""Forward, backward, optimizer, data: of operations, time and communication."""
