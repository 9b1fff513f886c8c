"""Operations in the form that a timeline draws."""
